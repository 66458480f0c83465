//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// porter is an HTTP server on the node that pods' hooks ask: its answer is theirs to wait for. PORTER in a spec stands
// for its address.
type porter struct {
	host, port string

	mu    sync.Mutex
	doors map[string]*door // by path
}

// door is one path of a porter.
type door struct {
	arrived chan struct{} // closed when somebody has asked
	open    chan struct{} // closed by the test: the question is answered then
	meet    sync.Once
}

func newPorter(t *testing.T) *porter {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", isolate.NodeIP+":0")
	must(t, err)
	p := &porter{doors: map[string]*door{}}
	p.host, p.port, err = net.SplitHostPort(listener.Addr().String())
	must(t, err)
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return p
}

func (p *porter) door(path string) *door {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doors[path] == nil {
		p.doors[path] = &door{arrived: make(chan struct{}), open: make(chan struct{})}
	}
	return p.doors[path]
}

// ServeHTTP implements http.Handler.
func (p *porter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := p.door(r.URL.Path + "?" + r.Header.Get("X-Who"))
	d.meet.Do(func() { close(d.arrived) })
	select {
	case <-d.open:
		w.WriteHeader(http.StatusOK)
	case <-r.Context().Done():
	}
}

// await waits until somebody stands at the door.
func (d *door) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-d.arrived:
	case <-ctx.Done():
		t.Fatal("nobody asks")
	}
}

// addressed puts the porter's address into a spec.
func (p *porter) addressed(spec string) string {
	return strings.ReplaceAll(spec, "PORTER", fmt.Sprintf("host: %s, port: %s", p.host, p.port))
}

// deletion is what the pods of TestGracefulDeletion do when they end, by name.
var deletion = map[string]string{
	"exec": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/exec, ended], DATA,
   lifecycle: {preStop: {exec: {command: [/hello, append, /data/exec, hook]}}}}`,
	"bad-hook": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/bad-hook, ended], DATA,
   lifecycle: {preStop: {exec: {command: [/hello, append, /data/bad-hook, hook, '--', exit, '1']}}}}`,
	"sleeps": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/sleeps, ended], DATA, lifecycle: {preStop: {sleep: {seconds: 2}}}}`,
	// The first asks itself, by the name of its port, and the second keeps the pod until the first was heard.
	"http": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, ports: [{name: web, containerPort: 8080}], lifecycle: {preStop: {httpGet: {path: /bye, port: web}}}}
- {name: keeper, image: HELLO, args: [sleep],
   lifecycle: {preStop: {httpGet: {PORTER, path: /http, httpHeaders: [{name: X-Who, value: keeper}]}}}}`,
	// The sidecar's hook comes when the others have ended, and keeps the pod.
	"stubborn": `
terminationGracePeriodSeconds: 4
initContainers:
- {name: keeper, image: HELLO, restartPolicy: Always, args: [sleep], lifecycle: {preStop: {httpGet: {PORTER, path: /stubborn}}}}
containers: [{name: c, image: HELLO, args: [ignore-term]}]`,
	"successor": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/successor, ended], DATA,
   lifecycle: {preStop: {httpGet: {PORTER, path: /successor}}}}`,
}

// How a pod ends: hooks, signal, grace, SIGKILL; who comes after it; and what ends where the pod stays.
func TestGracefulDeletion(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		w, p := &world{s: s, a: s.Agent(t), dir: t.TempDir()}, newPorter(t)
		for name, spec := range deletion {
			must(t, w.a.Write(name+".yaml", withFolder(s, name, w.dir, p.addressed(spec))))
		}
		for name := range deletion {
			awaitPod(t, w.a, name, ready)
		}
		t.Run("same UID", func(t *testing.T) { deletionSameUID(t, w) })
		begun := time.Now()
		for name := range deletion {
			if name != "successor" {
				must(t, w.a.Remove(name+".yaml"))
			}
		}
		t.Run("stubborn", func(t *testing.T) { deletionStubborn(t, w, p, begun) })
		t.Run("http", func(t *testing.T) { deletionHTTP(t, w, p) })
		t.Run("successor", func(t *testing.T) { deletionSuccessor(t, w, p) })
		t.Run("hooks", func(t *testing.T) { deletionHooks(t, w, begun) })
		cleared(t, s, w.a)
	})
}

// A container that ends on no signal gets the whole grace period, and is killed then.
func deletionStubborn(t *testing.T, w *world, p *porter, begun time.Time) {
	d := p.door("/stubborn?")
	d.await(t)
	c := containersOf(t, w.s, "stubborn", "c")
	if len(c) != 1 {
		t.Fatalf("there are %v", c)
	}
	end := told(t, w.s, c[0].Id)
	if end.State != runtimeapi.ContainerState_CONTAINER_EXITED || end.ExitCode != 137 {
		t.Errorf("the sidecar ends while the other is %v, with code %d", end.State, end.ExitCode)
	}
	if took := time.Duration(end.FinishedAt - begun.UnixNano()); took < 4*time.Second {
		t.Errorf("it was killed %v after its manifest went", took)
	}
	if text, err := w.s.Logs(t.Context(), c[0].Id); err != nil || !strings.Contains(text, "ignored TERM") {
		t.Errorf("it says %q, %v", text, err)
	}
	close(d.open)
	forgotten(t, w.a, "stubborn")
}

// A hook's request goes to the pod itself, or where it says; the container is there until it is answered.
func deletionHTTP(t *testing.T, w *world, p *porter) {
	keeper := p.door("/http?keeper")
	keeper.await(t)
	c := newest(t, w.s, "http", "c", runtimeapi.ContainerState_CONTAINER_EXITED)
	awaitLog(t, w.s, &stack.Pod{ContainerID: c.Id}, "listening\nGET /bye\n")
	if end := told(t, w.s, c.Id); end.ExitCode != 0 {
		t.Errorf("it ended with %d", end.ExitCode)
	}
	up(t, w.s, "http", "keeper")
	close(keeper.open)
	forgotten(t, w.a, "http")
}

// A changed manifest is another pod: it begins when its predecessor has ended.
func deletionSuccessor(t *testing.T, w *world, p *porter) {
	before := up(t, w.s, "successor", "c")
	spec := strings.Replace(deletion["successor"], "[sleep, '--', append, /data/successor, ended]",
		"[append, /data/successor, begun, '--', sleep]", 1)
	must(t, w.a.Write("successor.yaml", withFolder(w.s, "successor", w.dir, p.addressed(spec))))
	d := p.door("/successor?")
	d.await(t)
	await(t, func() error {
		now, err := w.a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		for _, pod := range now.Pods {
			if pod.Pod.Name == onNode("successor") && pod.Waiting != nil && pod.Waiting.Code == "PredecessorEnding" {
				return nil
			}
		}
		return fmt.Errorf("nobody waits for its predecessor: %+v", now.Pods)
	})
	if all := containersOf(t, w.s, "successor"); len(all) != 1 || all[0].Id != before.Id {
		t.Errorf("while the predecessor ends there are %v", all)
	}
	close(d.open)
	awaitFile(t, w.file("successor"), "ended\nbegun\n")
	awaitPod(t, w.a, "successor", ready)
	after := up(t, w.s, "successor", "c")
	if after.Labels[stack.UIDLabel] == before.Labels[stack.UIDLabel] || after.Metadata.Attempt != 0 {
		t.Errorf("the successor is attempt %d of pod %s", after.Metadata.Attempt, after.Labels[stack.UIDLabel])
	}
	must(t, w.a.Remove("successor.yaml"))
}

// The hook has ended before the container gets its signal; one that fails keeps nothing back.
func deletionHooks(t *testing.T, w *world, begun time.Time) {
	for _, name := range []string{"exec", "bad-hook", "sleeps"} {
		forgotten(t, w.a, name)
	}
	awaitFile(t, w.file("exec"), "hook\nended\n")
	awaitFile(t, w.file("bad-hook"), "hook\nended\n")
	awaitFile(t, w.file("sleeps"), "ended\n")
	info, err := os.Stat(w.file("sleeps"))
	must(t, err)
	// The clock of files lags by a few milliseconds.
	if took := info.ModTime().Sub(begun); took < 2*time.Second-100*time.Millisecond {
		t.Errorf("the sleeping hook let it end after %v", took)
	}
}

// With a UID of its own that stays the same the pod stays too: only the containers whose spec changed are replaced. They
// end as gracefully, and can be looked at afterwards.
func deletionSameUID(t *testing.T, w *world) {
	same := w.identified("same", `
terminationGracePeriodSeconds: 60
containers:
- {name: stays, image: HELLO, args: [sleep]}
- {name: c, image: HELLO, args: [ARGS]}`)
	// Its hook never ends by itself, and it ends on no signal.
	stuck := w.identified("stuck", `
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, args: [ARGS], DATA,
   lifecycle: {preStop: {exec: {command: [/hello, append, /data/stuck, hook, '--', sleep]}}}}`)
	same.write(t, "slow-term, '9', '1'")
	stuck.write(t, "ignore-term")
	awaitPod(t, w.a, "stuck", ready)
	awaitPod(t, w.a, "same", ready)
	stays := up(t, w.s, "same", "stays")
	if got := stays.Labels[stack.UIDLabel]; got != same.uid {
		t.Errorf("the pod's UID is %s", got)
	}
	sandbox := map[string]string{}
	for _, name := range []string{"same", "stuck"} {
		sandbox[name] = up(t, w.s, name, "c").PodSandboxId
	}
	same.write(t, "sleep")
	stuck.write(t, "sleep, '100000'")
	for name, code := range map[string]int32{"same": 9, "stuck": 137} {
		pod := awaitPod(t, w.a, name, func(p *corev1.Pod) error {
			if c := statusOf(p, "c"); c.RestartCount != 1 {
				return fmt.Errorf("the container: %+v", c)
			}
			return ready(p)
		})
		if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || end.ExitCode != code {
			t.Errorf("pod %s: the container that was replaced should have ended with %d: %+v", name, code, statusOf(pod, "c"))
		}
		if after := up(t, w.s, name, "c"); after.Metadata.Attempt != 1 || after.PodSandboxId != sandbox[name] {
			t.Errorf("pod %s: attempt %d in sandbox %s, before in %s", name, after.Metadata.Attempt, after.PodSandboxId, sandbox[name])
		}
	}
	awaitFile(t, w.file("stuck"), "hook\n")
	if now := up(t, w.s, "same", "stays"); now.Id != stays.Id {
		t.Error("the container that did not change is another")
	}
	must(t, w.a.Remove("same.yaml"))
	must(t, w.a.Remove("stuck.yaml"))
}

// identified is a pod whose manifest names its UID, so that a changed manifest is no successor.
type identified struct {
	w               *world
	name, uid, spec string
}

func (w *world) identified(name, spec string) identified {
	return identified{w, name, fmt.Sprintf("%s-of-%s", name, strings.ReplaceAll(string(w.s.Kind()), ".", "-")), spec}
}

// write writes the manifest, with args in place of ARGS.
func (i identified) write(t *testing.T, args string) {
	t.Helper()
	text := withFolder(i.w.s, i.name, i.w.dir, strings.ReplaceAll(i.spec, "ARGS", args))
	must(t, i.w.a.Write(i.name+".yaml", strings.Replace(text, "{name: "+i.name+"}", "{name: "+i.name+", uid: "+i.uid+"}", 1)))
}
