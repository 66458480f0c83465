package container

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lifecycle "github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// hooked starts a container with a pre-stop hook and returns the request to stop it.
func hooked(t *testing.T, h *host.Host, hook *v1.LifecycleHandler) messages.StopContainer {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image", Lifecycle: &v1.Lifecycle{PreStop: hook}}}},
	}
	c := &pod.Spec.Containers[0]
	done := start(t.Context(), h, messages.RunContainer{Pod: pod, Container: c, ImageRef: "image",
		Sandbox: sandbox(t, h, pod, 0)})
	if done.fact == nil || done.fact.State != messages.ContainerRunning {
		t.Fatalf("it does not run: %+v", done)
	}
	return messages.StopContainer{UID: "u1", Name: "c", Fact: *done.fact, Pod: pod, Spec: c, IPs: []string{"127.0.0.1"},
		Grace: time.Minute}
}

func command(c ...string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: c}}
}

// The hooks of all pods of a drained node run in the same grace period, so no hook may wait for another.
func TestDrain_RunsPreStopHooksTogether(t *testing.T) {
	const hooks = 80
	var begun atomic.Int32
	all := make(chan struct{})
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
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
		go func() {
			_, err := lifecycle.Run(ctx, h, m, m.Spec.Lifecycle.PreStop, m.Spec.Ports)
			ended <- err
		}()
	}
	for range hooks {
		if err := <-ended; err != nil {
			t.Fatalf("%d of %d hooks had begun: %v", begun.Load(), hooks, err)
		}
	}
}

// get returns a hook that sends a request to a server.
func get(path string, scheme v1.URIScheme, s *httptest.Server) *v1.LifecycleHandler {
	port := s.Listener.Addr().(*net.TCPAddr).Port // httptest serves TCP
	return &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Scheme: scheme, Port: intstr.FromInt(port),
		HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}}}}
}

// Any answer to a hook's request is a success, as in the kubelet. So is a plain HTTP answer to an HTTPS request. The HTTP retry
// carries no credentials.
func TestAnyAnswerToAHookIsSuccess(t *testing.T) {
	var credentials atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials.Store(r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/broken":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("less"))
		}
	}))
	defer s.Close()
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	m := hooked(t, h, nil)
	for _, path := range []string{"/", "/teapot", "/broken"} {
		for scheme, sent := range map[v1.URIScheme]string{"HTTP": "secret", "HTTPS": ""} {
			credentials.Store("nobody asked")
			fallback, err := lifecycle.Run(t.Context(), h, m, get(path, scheme, s), m.Spec.Ports)
			if err != nil || credentials.Load() != sent || (fallback == s.Listener.Addr().String()) != (scheme == "HTTPS") {
				t.Errorf("%s %s: %v, with the credentials %q, fallback %q", scheme, path, err, credentials.Load(), fallback)
			}
		}
	}
}

// A failed hook is logged with pod and container, since no other record of it exists. The log omits the application's output,
// which may be a secret.
func TestAFailedHookIsReported(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Exec: func(context.Context, sim.Target, []string) sim.ExecResult {
			return sim.ExecResult{Code: 3, Stderr: "no such queue " + long}
		},
	}})
	m := hooked(t, h, nil)
	for name, c := range map[string]struct {
		hook *v1.LifecycleHandler
		want string
	}{
		"a command":           {command("drain", "--password=secret"), "ended with code 3\""},
		"a request to nobody": {get("/drain?token=secret", "HTTPS", closed), "/drain: "},
		"nothing":             {&v1.LifecycleHandler{}, "the hook has no handler"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			was := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(was)
			if _, err := lifecycle.Run(t.Context(), h, m, c.hook, nil); err == nil {
				t.Error("it did not fail")
			}
			got := log.String()
			for _, want := range []string{"level=WARN", "pod=default/web", "container=c", c.want} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %s", want, got)
				}
			}
			if strings.Contains(got, "secret") || strings.Contains(got, "queue") || len(got) > 1000 {
				t.Errorf("it says too much: %s", got)
			}
		})
	}
}

// A plain HTTP answer to an HTTPS hook is recorded as an Event of the pod, for each kind of hook.
func TestAnHTTPFallbackIsRecorded(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	r := plain(t)
	r.desired.Container.Lifecycle = &v1.Lifecycle{PostStart: get("/", "HTTPS", s), PreStop: get("/", "HTTPS", s)}
	r.desired.Sandbox.IPs = []string{"127.0.0.1"}
	k := r.actor()
	fallbacks := func() (n int) {
		for _, m := range k.Take() {
			if e, ok := m.Msg.(messages.RecordEvent); ok && e.Reason == messages.EventHTTPFallback && e.Object.FieldPath == "" &&
				e.Message == "request to HTTPS lifecycle hook "+s.Listener.Addr().String()+" got HTTP response, retry with HTTP succeeded" {
				n++
			}
		}
		return n
	}
	k.Send("pods/u1", r.desired)
	k.RunWork()
	if n := fallbacks(); n != 1 {
		t.Errorf("post-start: %d Events", n)
	}
	stop := r.stopOf(r.fact(messages.ContainerRunning), "its pod is ending")
	stop.IPs = r.desired.Sandbox.IPs
	k.Send("pods/u1", stop)
	k.RunWork()
	if n := fallbacks(); n != 1 {
		t.Errorf("pre-stop: %d Events", n)
	}
}
