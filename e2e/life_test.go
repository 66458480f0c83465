//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// life are the pods of TestTheLifeOfContainers, by name. They record their steps in files of /data.
var life = map[string]string{
	"order": `
terminationGracePeriodSeconds: 60
initContainers:
- {name: one, image: HELLO, args: [sleep, '1', '--', append, /data/begun, one], DATA}
- {name: s1, image: HELLO, restartPolicy: Always, args: [sleep, '--', append, /data/ended, s1], DATA}
- {name: two, image: HELLO, args: [sleep, '1', '--', append, /data/begun, two], DATA}
- {name: s2, image: HELLO, restartPolicy: Always, args: [slow-term, '0', '1', '--', append, /data/ended, s2], DATA}
containers:
- {name: main, image: HELLO, args: [append, /data/begun, main, '--', slow-term, '0', '1', '--', append, /data/ended, main], DATA}`,
	"init-never": `
restartPolicy: Never
initContainers: [{name: bad, image: HELLO, args: [exit, '3']}, {name: next, image: HELLO, args: [exit, '0']}]
containers: [{name: main, image: HELLO, args: [sleep]}]`,
	"init-retry": `
restartPolicy: OnFailure
terminationGracePeriodSeconds: 5
initContainers: [{name: tries, image: HELLO, args: [append, /data/tries, tried, '--', check-file, /data/init-may], DATA}]
containers: [{name: main, image: HELLO, args: [sleep]}]`,
	"always": `
restartPolicy: Always
containers: [{name: c, image: HELLO, args: [exit, '0']}]`,
	"on-failure": `
restartPolicy: OnFailure
containers:
- {name: fails, image: HELLO, args: [append, /data/failures, tried, '--', check-file, /data/may], DATA}
- {name: fine, image: HELLO, args: [exit, '0']}`,
	"never": `
restartPolicy: Never
containers: [{name: fails, image: HELLO, args: [exit, '4']}, {name: fine, image: HELLO, args: [exit, '0']}]`,
	"done": `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [append, /data/done, ran], DATA}]`,
	"own": `
restartPolicy: Never
containers:
- {name: rule, image: HELLO, args: [exit, '42'], restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}
- {name: fails, image: HELLO, args: [append, /data/own, tried, '--', check-file, /data/own-may], restartPolicy: OnFailure, DATA}
- {name: fine, image: HELLO, args: [exit, '0'], restartPolicy: OnFailure}
- {name: once, image: HELLO, args: [exit, '4']}`,
	"missing": `
containers: [{name: c, image: HELLO, command: [/not/there]}]`,
	"crash": `
terminationGracePeriodSeconds: 5
containers: [{name: c, image: HELLO, args: [sleep]}]`,
}

// The rules of restartPolicy, init containers and sidecars, and that a finished pod is never run again.
func TestTheLifeOfContainers(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		w := &world{s: s, a: agentWith(t, s, unhurried), dir: t.TempDir()}
		w.steps(t, nil)
	})
}

// step is a part of a test, which goes on where the one before has stopped.
type step struct {
	name string
	test func(*testing.T, *world)
}

// steps has the pods of life begin, and takes the steps of their life, others among them before the last two, with which they
// end.
func (w *world) steps(t *testing.T, others []step) {
	for name := range life {
		w.begin(t, name)
	}
	for _, part := range slices.Concat([]step{
		{"order", lifeOrder},
		{"init never", lifeInitNever},
		{"init retry", lifeInitRetry},
		{"always", lifeAlways},
		{"on failure", lifeOnFailure},
		{"never", lifeNever},
		{"own", lifeOwn},
		{"missing", lifeMissing},
		{"crash", lifeCrash},
	}, others, []step{
		{"finished", lifeFinished},
		{"end", lifeEnd},
	}) {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, w) }) {
			return // the others would time out
		}
	}
}

// world is the state shared by the parts of a test.
type world struct {
	s     *stack.Stack
	a     *stack.Agent
	dir   string // of the host, at /data of pods that mount it
	class string // RuntimeClass of the pods, or empty
}

// begin writes the manifest of one of the pods of life.
func (w *world) begin(t *testing.T, name string) {
	t.Helper()
	spec := life[name]
	if w.class != "" {
		spec = "runtimeClassName: " + w.class + "\n" + strings.TrimSpace(spec)
	}
	must(t, w.a.Write(name+".yaml", withFolder(w.s, name, w.dir, spec)))
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// allow makes the file that a container waits for.
func (w *world) allow(t *testing.T, name string) { must(t, os.WriteFile(w.file(name), nil, 0o644)) }

// Init containers run one after another, each to its end; a sidecar among them only has to run before the next begins.
func lifeOrder(t *testing.T, w *world) {
	awaitPod(t, w.a, "order", ready)
	awaitFile(t, w.file("begun"), "one\ntwo\nmain\n")
	var before *runtimeapi.ContainerStatus
	for _, name := range []string{"one", "s1", "two", "s2", "main"} {
		all := containersOf(t, w.s, "order", name)
		if len(all) != 1 {
			t.Fatalf("there are %d containers %s: %v", len(all), name, all)
		}
		now := sent(t, w.s, all[0].Id)
		if before != nil {
			since := before.FinishedAt
			if strings.HasPrefix(before.Metadata.Name, "s") {
				since = before.StartedAt
			}
			if since == 0 || now.CreatedAt < since {
				t.Errorf("%s was created at %d, before %s had its turn: %+v", name, now.CreatedAt, before.Metadata.Name, before)
			}
		}
		before = now
	}
	pod := awaitPod(t, w.a, "order", ready)
	for _, name := range []string{"one", "two"} {
		if end := statusOf(pod, name).State.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" {
			t.Errorf("init container %s: %+v", name, statusOf(pod, name))
		}
	}
	// A sidecar that dies is restarted, without an effect on the others.
	w.kill(t, up(t, w.s, "order", "s1"))
	awaitPod(t, w.a, "order", func(p *corev1.Pod) error {
		if c := statusOf(p, "s1"); c.RestartCount != 1 || c.State.Running == nil {
			return fmt.Errorf("the sidecar: %+v", c)
		}
		return ready(p)
	})
	if main := up(t, w.s, "order", "main"); main.Id != before.Id {
		t.Error("the main container is another")
	}
	if got := len(containersOf(t, w.s, "order", "one", "two", "s2", "main")); got != 4 {
		t.Errorf("%d containers are there beside s1, want 4", got)
	}
}

// kill kills the process of a container.
func (w *world) kill(t *testing.T, c *runtimeapi.Container) {
	t.Helper()
	pid, err := w.s.ContainerPID(t.Context(), c.Id)
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// With restartPolicy Never an init container has one try; then the pod has failed, and none of the others is made.
func lifeInitNever(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "init-never", inPhase(corev1.PodFailed))
	if end := statusOf(pod, "bad").State.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("the init container: %+v", statusOf(pod, "bad"))
	}
	if wait := statusOf(pod, "main").State.Waiting; wait == nil || wait.Reason != "PodInitializing" {
		t.Errorf("the main container: %+v", statusOf(pod, "main"))
	}
	w.onlyFirst(t, "init-never", "bad")
}

// onlyFirst checks that a pod has these containers alone, each at its first attempt, and that all have ended.
func (w *world) onlyFirst(t *testing.T, pod string, names ...string) {
	t.Helper()
	all := containersOf(t, w.s, pod)
	for _, c := range all {
		if c.Metadata.Attempt != 0 || c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("pod %s: container %s has attempt %d, %v", pod, c.Metadata.Name, c.Metadata.Attempt, c.State)
		}
	}
	if found := containersOf(t, w.s, pod, names...); len(all) != len(names) || len(found) != len(names) {
		t.Errorf("pod %s has the containers %v, want %v", pod, all, names)
	}
}

// With restartPolicy OnFailure it is tried until it succeeds, with back-off, and the others wait.
func lifeInitRetry(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "init-retry", waitsFor("CrashLoopBackOff"))
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	if end := statusOf(pod, "tries").LastTerminationState.Terminated; end == nil || end.ExitCode != 1 {
		t.Errorf("the init container: %+v", statusOf(pod, "tries"))
	}
	if mains := containersOf(t, w.s, "init-retry", "main"); len(mains) > 0 {
		t.Errorf("the main container was made: %v", mains)
	}
	w.allow(t, "init-may")
	pod = awaitPod(t, w.a, "init-retry", ready)
	if got := statusOf(pod, "tries"); got.RestartCount == 0 || got.State.Terminated == nil || got.State.Terminated.ExitCode != 0 {
		t.Errorf("the init container: %+v", got)
	}
	w.tried(t, "tries", statusOf(pod, "tries").RestartCount)
}

// Sidecars end after the others, the last first, each when the one before has ended.
func lifeEnd(t *testing.T, w *world) {
	for name := range life {
		must(t, w.a.Remove(name+".yaml"))
	}
	nothing(t, w.s)
	must(t, w.s.SweepByForce()) // of a start in progress when the agent was killed
	cleared(t, w.s, w.a)
	awaitFile(t, w.file("ended"), "main\ns2\ns1\n")
}
