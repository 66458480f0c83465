package container

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// hooked is a running container with a pre-stop hook, and the wish to stop it.
func hooked(t *testing.T, h *host.Host, hook *v1.LifecycleHandler) messages.StopContainer {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image", Lifecycle: &v1.Lifecycle{PreStop: hook}}}},
	}
	c := &pod.Spec.Containers[0]
	done := start(t.Context(), h, messages.RunContainer{Pod: pod, Container: c, ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)})
	if done.fact == nil || done.fact.State != messages.ContainerRunning {
		t.Fatalf("it does not run: %+v", done)
	}
	return messages.StopContainer{UID: "u1", Name: "c", Fact: *done.fact, Pod: pod, Spec: c, IPs: []string{"127.0.0.1"}, Grace: time.Minute}
}

func command(c ...string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: c}}
}

// A node is drained: the hooks of all its pods run in the same grace period, so none may wait for another to end.
func TestThePreStopHooksOfADrainAllRunAtOnce(t *testing.T) {
	const hooks = 80
	var begun atomic.Int32
	all := make(chan struct{})
	h, _ := simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Exec: func(ctx context.Context, _ sim.Target, _ []string) sim.ExecResult {
			if begun.Add(1) == hooks {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
			return sim.ExecResult{}
		},
	}})
	m := hooked(t, h, command("drain"))
	ctx, cancel := context.WithTimeout(t.Context(), m.Grace)
	defer cancel()
	ended := make(chan error, hooks)
	for range hooks {
		go func() { ended <- runHook(ctx, h, m, m.Spec.Lifecycle.PreStop) }()
	}
	for range hooks {
		if err := <-ended; err != nil {
			t.Fatalf("%d of %d hooks had begun: %v", begun.Load(), hooks, err)
		}
	}
}

// What becomes of a hook is known to nobody else: its failure is told, naming pod and container, and never with all that
// the application said.
func TestAFailedHookIsTold(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	answer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(long))
	}))
	defer answer.Close()
	at, err := url.Parse(answer.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	h, _ := simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Exec: func(context.Context, sim.Target, []string) sim.ExecResult {
			return sim.ExecResult{Code: 3, Stderr: "no such queue " + long}
		},
	}})
	m := hooked(t, h, nil)
	for name, c := range map[string]struct {
		hook *v1.LifecycleHandler
		want string
	}{
		"a command": {command("drain", "--password=secret"), "ended with code 3: no such queue"},
		"a request": {&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/drain?token=secret", Port: intstr.FromInt(port)}}, "/drain answered with code 418"},
		"a request to nobody": {&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/drain?token=secret", Scheme: "HTTPS", Port: intstr.FromInt(port)}},
			"/drain: "},
		"nothing": {&v1.LifecycleHandler{}, "it has no action"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			was := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(was)
			if err := runHook(t.Context(), h, m, c.hook); err == nil {
				t.Error("it did not fail")
			}
			got := log.String()
			for _, want := range []string{"level=WARN", "namespace=default pod=web", "container=c", c.want} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %s", want, got)
				}
			}
			if strings.Contains(got, "secret") || len(got) > 1000 {
				t.Errorf("it says too much: %s", got)
			}
		})
	}
}
