package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// debugged returns the pod with one more ephemeral container, which shares the processes of the target, if any.
func debugged(pod *v1.Pod, name, target string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "image", Stdin: true, TTY: true},
		TargetContainerName:      target,
	})
	return pod
}

// A container for debugging starts in a running pod, appears in the status, and never starts again. It does not affect the pod,
// and ends with it.
func TestAnEphemeralContainerRunsOnce(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	debug := func() v1.ContainerStatus {
		t.Helper()
		if check(t, w); len(w.status.EphemeralContainerStatuses) != 1 || w.status.Phase != v1.PodRunning || !allReady(w.status) {
			t.Fatalf("told %+v", w.status)
		}
		return w.status.EphemeralContainerStatuses[0]
	}
	w.edits, w.pod = 1, debugged(w.pod, "debug", "c0")
	w.send(w.desired())
	w.settle()
	if s := debug(); s.State.Running == nil || s.Ready || s.Started != nil {
		t.Errorf("running, it is %+v", s)
	}
	before := slices.Clone(w.containers)
	w.restart()
	w.settle()
	if s := debug(); s.State.Running == nil || len(w.containers) != len(before) || len(w.stops) > 0 {
		t.Errorf("after a restart of the actor it is %+v; stopped: %v", s, w.stops)
	}
	w.exit = func(name string, _ uint32) (int32, bool) { return 3, name == "debug" }
	w.settle()
	w.restart()
	w.settle()
	if s := debug(); s.State.Terminated == nil || s.State.Terminated.ExitCode != 3 || s.RestartCount != 0 ||
		len(w.containers) != 2 {
		t.Errorf("ended, it is %+v; there are %+v", s, w.containers)
	}
	w.exit = func(string, uint32) (int32, bool) { return 0, false }
	w.edits, w.pod = 2, debugged(w.pod, "another", "")
	w.send(w.desired())
	w.settle()
	if got := w.runningNames(); !slices.Equal(got, []string{"another", "c0"}) {
		t.Errorf("running: %v", got)
	}
	w.ending = &messages.Ending{Reason: "test"}
	w.send(w.desired())
	w.settle()
	if check(t, w); len(w.containers) > 0 || !slices.Contains(w.stops, "another") {
		t.Errorf("left: %v; stopped: %v", w.containers, w.stops)
	}
}

// A pod ends by its regular containers, while one for debugging runs.
func TestAnEphemeralContainerKeepsNoPodAlive(t *testing.T) {
	w := newWorld(debugged(testPod(v1.RestartPolicyNever, 0, 1), "debug", ""))
	w.step(nil)
	w.settle()
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "debug"}) {
		t.Fatalf("running: %v", got)
	}
	w.exit = func(name string, _ uint32) (int32, bool) { return 0, name == "c0" }
	w.settle()
	if check(t, w); w.status.Phase != v1.PodSucceeded || len(w.runningNames()) > 0 ||
		w.status.EphemeralContainerStatuses[0].State.Terminated == nil {
		t.Errorf("it is %+v, running %v", w.status, w.runningNames())
	}
}

// A container for debugging starts in a pod that does not get past its init containers. That does not count as initialized.
func TestEphemeralContainer_StartsBeforeInitialization(t *testing.T) {
	w := newWorld(debugged(testPod(v1.RestartPolicyAlways, 1, 1), "debug", "init0"))
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"debug", "init0"}) || w.machine.Phase() != Initializing {
		t.Errorf("%s with %v", w.machine.Phase(), got)
	}
	if c := w.status.Conditions[1]; c.Type != v1.PodInitialized || c.Status != v1.ConditionFalse {
		t.Errorf("told %+v", w.status.Conditions)
	}
}

// It starts in the namespace of its target, after the target runs.
func TestAnEphemeralContainerWaitsForItsTarget(t *testing.T) {
	a := newReady(debugged(testPod(v1.RestartPolicyAlways, 0, 1), "debug", "c0"))
	a.hears(messages.ChildStarted{Name: "debug"}, pulled("debug", "image"))
	if got := ran(a); len(got) > 0 {
		t.Errorf("told to run: %v", got)
	}
	if s := a.machine.status().EphemeralContainerStatuses[0].State.Waiting; s == nil ||
		s.Reason != messages.ReasonCreateConfig {
		t.Errorf("it waits: %+v", s)
	}
	a.hears(pulled("c0", "image"), started(madeIn(a, "c0", messages.ContainerRunning)))
	runs := sentOf[messages.RunContainer](a.take())
	if len(runs) != 2 || runs[1].Container.Name != "debug" || runs[1].TargetID != "c0-1" || runs[0].TargetID != "" {
		t.Errorf("told to run: %+v", runs)
	}
}

// A container of a kubelet is adopted, and left alone.
func TestAnEphemeralContainerOfAKubeletIsAdopted(t *testing.T) {
	a := newAlone(debugged(cloudPod(v1.RestartPolicyAlways, 0, 1), "debug", ""))
	a.machine.Set.ChangedImage = func(*v1.Container, messages.ContainerFact) bool { return true }
	a.observes([]messages.SandboxFact{{ID: "s1", Ready: true, CreatedAt: a.now, IPs: []string{"10.88.0.2"}}},
		madeIn(a, "debug", messages.ContainerRunning))
	a.hears(messages.VolumesMounted{UID: "u1"}, grouped(a.machine.Pod), messages.ChildStarted{Name: "debug"})
	fx := a.take()
	if runs := sentOf[messages.RunContainer](fx); len(runs) != 1 || runs[0].Adopt == nil || runs[0].Adopt.ID != "debug-1" {
		t.Fatalf("told to run: %+v", runs)
	}
	a.hears(started(madeIn(a, "debug", messages.ContainerRunning)))
	a.passes(time.Minute)
	if stops := sentOf[messages.StopContainer](append(fx, a.take()...)); len(stops) > 0 {
		t.Errorf("stopped: %+v", stops)
	}
}
