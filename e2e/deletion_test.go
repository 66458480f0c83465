//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// deletion are the pods of TestGracefulDeletion, by name, with their reaction to a deletion.
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
	// The first hook's request goes to the pod itself, by the name of its port; the second keeps the pod until the first request
	// was received.
	"http": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, ports: [{name: web, containerPort: 8080}], lifecycle: {preStop: {httpGet: {path: /bye, port: web}}}}
- {name: keeper, image: HELLO, args: [sleep],
   lifecycle: {preStop: {httpGet: {PORTER, path: /http, httpHeaders: [{name: X-Who, value: keeper}]}}}}`,
	// The sidecar's hook comes at once; its signal would come when the other has ended.
	"stubborn": `
terminationGracePeriodSeconds: 10
initContainers:
- {name: keeper, image: HELLO, restartPolicy: Always, args: [sleep], lifecycle: {preStop: {httpGet: {PORTER, path: /stubborn}}}}
containers: [{name: c, image: HELLO, args: [ignore-term]}]`,
	"successor": `
terminationGracePeriodSeconds: 60
containers:
- {name: c, image: HELLO, args: [sleep, '--', append, /data/successor, ended], DATA,
   lifecycle: {preStop: {httpGet: {PORTER, path: /successor}}}}`,
}

// The end of a pod: hooks, signal, grace period, SIGKILL; its successor; and containers that end while the pod stays.
func TestGracefulDeletion(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		w, p := &world{s: s, a: s.Agent(t), dir: t.TempDir()}, newPorter(t)
		for name, spec := range deletion {
			must(t, w.a.Write(name+".yaml", withFolder(s, name, w.dir, p.addressed(spec))))
		}
		for name := range deletion {
			awaitPod(t, w.a, name, ready)
		}
		var begun time.Time
		for _, part := range []struct {
			name string
			test func(*testing.T)
		}{
			{"same UID", func(t *testing.T) { deletionSameUID(t, w) }},
			{"end", func(t *testing.T) {
				begun = time.Now()
				for name := range deletion {
					if name != "successor" {
						must(t, w.a.Remove(name+".yaml"))
					}
				}
			}},
			{"stubborn", func(t *testing.T) { deletionStubborn(t, w, p, begun) }},
			{"http", func(t *testing.T) { deletionHTTP(t, w, p) }},
			{"successor", func(t *testing.T) { deletionSuccessor(t, w, p) }},
			{"hooks", func(t *testing.T) { deletionHooks(t, w, begun) }},
			{"nothing is left", func(t *testing.T) { cleared(t, s, w.a) }},
		} {
			if !t.Run(part.name, part.test) {
				return // the others would time out
			}
		}
	})
}

// A container that ends on no signal gets the whole grace period, and is killed then. The hook of the sidecar beside it runs
// from the beginning (KEP-753).
func deletionStubborn(t *testing.T, w *world, p *porter, begun time.Time) {
	d := p.door("/stubborn?")
	d.await(t)
	c := containersOf(t, w.s, "stubborn", "c")
	if len(c) != 1 || c[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("at the sidecar's hook there are %v", c)
	}
	awaitLog(t, w.s, &stack.Pod{ContainerID: c[0].Id}, "ignored TERM\n")
	// The runtime has been asked to stop it. The agent, stopped, cannot remove it before all has been looked at.
	must(t, syscall.Kill(w.a.PID(), syscall.SIGSTOP))
	defer func() {
		close(d.open)
		must(t, syscall.Kill(w.a.PID(), syscall.SIGCONT))
		forgotten(t, w.a, "stubborn")
	}()
	end := down(t, w.s, "stubborn", "c")
	if end.ExitCode != 137 {
		t.Errorf("it ended with %d", end.ExitCode)
	}
	if took := time.Duration(end.FinishedAt - begun.UnixNano()); took < 10*time.Second {
		t.Errorf("it was killed %v after its manifest went", took)
	}
	if keeper := containersOf(t, w.s, "stubborn", "keeper"); len(keeper) != 1 ||
		keeper[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("meanwhile the sidecar is %v", keeper)
	}
}

// A hook's request goes to the pod itself, or to the given host; the container runs until it is answered.
func deletionHTTP(t *testing.T, w *world, p *porter) {
	keeper := p.door("/http?keeper")
	keeper.await(t)
	c := newest(t, w.s, "http", "c", runtimeapi.ContainerState_CONTAINER_EXITED)
	awaitLog(t, w.s, &stack.Pod{ContainerID: c.Id}, "listening\nGET /bye\n")
	if end := sent(t, w.s, c.Id); end.ExitCode != 0 {
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
