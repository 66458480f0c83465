//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tried checks that a container of so many restarts has run once more than that.
func (w *world) tried(t *testing.T, file string, restarts int32) {
	t.Helper()
	got, err := os.ReadFile(w.file(file))
	if n := strings.Count(string(got), "tried\n"); err != nil || n != int(restarts)+1 {
		t.Errorf("it ran %d times and has %d restarts, %v", n, restarts, err)
	}
}

// With restartPolicy Always a container that succeeds is started again too, each time as the next attempt, after the
// back-off that the configuration allows.
func lifeAlways(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "always", func(p *corev1.Pod) error {
		if got := statusOf(p, "c").RestartCount; got < 3 {
			return fmt.Errorf("%d restarts", got)
		}
		return waitsFor("CrashLoopBackOff")(p)
	})
	c := statusOf(pod, "c")
	if end := c.LastTerminationState.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" || c.Ready {
		t.Errorf("the container: %+v", c)
	}
	if !strings.Contains(c.State.Waiting.Message, "back-off "+longestBackOff.String()+" ") || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s and says %q", pod.Status.Phase, c.State.Waiting.Message)
	}
	w.paused(t, "always", "c")
}

// paused checks that a container's attempts follow one another, each after the back-off, which is longestBackOff at most.
func (w *world) paused(t *testing.T, pod, name string) {
	t.Helper()
	ended := map[uint32]int64{} // by attempt
	for _, c := range containersOf(t, w.s, pod, name) {
		resp, err := w.s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			continue // the oldest are collected after a while
		}
		attempt := c.Metadata.Attempt
		if _, twice := ended[attempt]; twice {
			t.Errorf("there are two containers of attempt %d", attempt)
		}
		ended[attempt] = resp.Status.FinishedAt
		first, before := ended[attempt-2], ended[attempt-1]
		// The first restart is at once, and so is one after an attempt that lasted for twice the longest back-off, as
		// each does on a machine that is slow enough.
		if first == 0 || before == 0 || time.Duration(before-first) > 2*longestBackOff {
			continue
		}
		if pause := time.Duration(c.CreatedAt - before); pause < longestBackOff {
			t.Errorf("attempt %d came %v after the end of the one before", attempt, pause)
		}
	}
	if len(ended) < 2 {
		t.Errorf("%d containers were looked at", len(ended))
	}
}

// With restartPolicy OnFailure a container that succeeds is left, and one that fails is started again until it succeeds.
func lifeOnFailure(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "on-failure", func(p *corev1.Pod) error {
		if statusOf(p, "fine").State.Terminated == nil || statusOf(p, "fails").RestartCount == 0 {
			return fmt.Errorf("status: %+v", p.Status)
		}
		return waitsFor("CrashLoopBackOff")(p)
	})
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	w.allow(t, "may")
	pod = awaitPod(t, w.a, "on-failure", inPhase(corev1.PodSucceeded))
	w.tried(t, "failures", statusOf(pod, "fails").RestartCount)
	if c := statusOf(pod, "fine"); c.RestartCount != 0 || len(containersOf(t, w.s, "on-failure", "fine")) != 1 {
		t.Errorf("what succeeded was started again: %+v", c)
	}
}

// With restartPolicy Never nothing is started again, and one failure is the pod's.
func lifeNever(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "never", inPhase(corev1.PodFailed))
	if end := statusOf(pod, "fails").State.Terminated; end == nil || end.ExitCode != 4 || end.Reason != "Error" {
		t.Errorf("the container that failed: %+v", statusOf(pod, "fails"))
	}
	if end := statusOf(pod, "fine").State.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("the container that succeeded: %+v", statusOf(pod, "fine"))
	}
	w.onlyFirst(t, "never", "fails", "fine")
	awaitPod(t, w.a, "done", inPhase(corev1.PodSucceeded))
	w.onlyFirst(t, "done", "c")
}

// A container's own restart rules override the pod's (KEP-5307), and the pod continues as long as one container is restarted.
func lifeOwn(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "own", func(p *corev1.Pod) error {
		if statusOf(p, "rule").RestartCount < 2 || statusOf(p, "fails").RestartCount < 1 ||
			statusOf(p, "fine").State.Terminated == nil || statusOf(p, "once").State.Terminated == nil {
			return fmt.Errorf("status: %+v", p.Status)
		}
		return nil
	})
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s", pod.Status.Phase)
	}
	w.allow(t, "own-may")
	pod = awaitPod(t, w.a, "own", func(p *corev1.Pod) error {
		if end := statusOf(p, "fails").State.Terminated; end == nil || end.ExitCode != 0 {
			return fmt.Errorf("the container: %+v", statusOf(p, "fails"))
		}
		return nil
	})
	w.tried(t, "own", statusOf(pod, "fails").RestartCount)
	for _, name := range []string{"fine", "once"} {
		if c := statusOf(pod, name); c.RestartCount != 0 || len(containersOf(t, w.s, "own", name)) != 1 {
			t.Errorf("%s was started again: %+v", name, c)
		}
	}
}

// A program that is not there is no success, and is tried again likewise.
func lifeMissing(t *testing.T, w *world) {
	pod := awaitPod(t, w.a, "missing", func(p *corev1.Pod) error {
		if got := statusOf(p, "c").RestartCount; got < 2 {
			return fmt.Errorf("%d restarts", got)
		}
		return waitsFor("CrashLoopBackOff")(p)
	})
	if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || end.ExitCode != 128 ||
		end.Reason != "StartError" {
		t.Errorf("the container: %+v", statusOf(pod, "c"))
	}
	w.paused(t, "missing", "c")
}

// A container that crashed is started again in the same sandbox, as the next attempt, and both are counted.
func lifeCrash(t *testing.T, w *world) {
	before := up(t, w.s, "crash", "c")
	awaitPod(t, w.a, "crash", ready)
	w.kill(t, before)
	pod := awaitPod(t, w.a, "crash", func(p *corev1.Pod) error {
		if got := statusOf(p, "c").RestartCount; got != 1 {
			return fmt.Errorf("%d restarts", got)
		}
		return ready(p)
	})
	if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || end.ExitCode != 137 ||
		!strings.HasSuffix(end.ContainerID, before.Id) {
		t.Errorf("the container: %+v", statusOf(pod, "c"))
	}
	after := up(t, w.s, "crash", "c")
	if after.Metadata.Attempt != 1 || after.PodSandboxId != before.PodSandboxId {
		t.Errorf("attempt %d in sandbox %s, before in %s", after.Metadata.Attempt, after.PodSandboxId, before.PodSandboxId)
	}
}

// A pod that has finished is not run again by the next agent, not even where the runtime has forgotten it. Counts of
// restarts go on.
func lifeFinished(t *testing.T, w *world) {
	finished := map[string]corev1.PodPhase{
		"done": corev1.PodSucceeded, "never": corev1.PodFailed, "init-never": corev1.PodFailed, "on-failure": corev1.PodSucceeded,
	}
	for name, phase := range finished {
		awaitOver(t, w.a, name, phase)
	}
	before := map[string]bool{}
	for name := range finished {
		for _, c := range containersOf(t, w.s, name) {
			before[c.Id] = true
		}
	}
	counted := statusOf(awaitPod(t, w.a, "always", waitsFor("CrashLoopBackOff")), "c").RestartCount
	must(t, w.a.Kill9())
	for _, c := range containersOf(t, w.s, "done") {
		must(t, w.s.RemoveSandbox(t.Context(), c.PodSandboxId))
	}
	must(t, w.a.Start())
	for name, phase := range finished {
		pod := awaitOver(t, w.a, name, phase)
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.StartTime == nil {
			t.Errorf("what became of pod %s is forgotten: %+v", name, pod.Status)
		}
	}
	// The agent is at work again: it has begun all that it would do.
	awaitPod(t, w.a, "always", func(p *corev1.Pod) error {
		if got := statusOf(p, "c").RestartCount; got <= counted+1 {
			return fmt.Errorf("%d restarts, %d before the agent was killed", got, counted)
		}
		return nil
	})
	for name := range finished {
		for _, c := range containersOf(t, w.s, name) {
			if !before[c.Id] {
				t.Errorf("pod %s had finished, and container %s was made, attempt %d", name, c.Metadata.Name, c.Metadata.Attempt)
			}
		}
	}
	w.paused(t, "always", "c") // the back-off went on where it was
	awaitFile(t, w.file("done"), "ran\n")
	// Taken away and written again, it is a new pod.
	must(t, w.a.Remove("done.yaml"))
	forgotten(t, w.a, "done")
	w.begin(t, "done")
	awaitFile(t, w.file("done"), "ran\nran\n")
}

// awaitOver waits until a pod has finished by itself and the agent has no more to do about it.
func awaitOver(t *testing.T, a *stack.Agent, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		state := now.Pod(onNode(name))
		if state == nil || state.Phase != "finished" {
			return fmt.Errorf("pod %s: %+v", name, state)
		}
		pod = state.Pod
		return inPhase(phase)(pod)
	})
	return pod
}
