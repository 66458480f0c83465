package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// cloudPod returns a pod of the API server.
func cloudPod(policy v1.RestartPolicy, init, regular int) *v1.Pod {
	p := testPod(policy, init, regular)
	p.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	return p
}

func ended(w *world, code int32) messages.ContainerFact {
	f := w.containers[0]
	f.State, f.ExitCode, f.FinishedAt = messages.ContainerExited, code, w.now
	return f
}

// A stop that the runtime failed is retried sooner than one without an answer.
func TestAStopThatFailedIsTriedAgainSoon(t *testing.T) {
	pod := cloudPod(v1.RestartPolicyAlways, 0, 1)
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	stops := func(after time.Duration, msg any) int {
		a.now = a.now.Add(after)
		a.hears(msg)
		return len(sentOf[messages.StopContainer](a.take()))
	}
	if n := stops(0, messages.PodWanted{Pod: pod, Generation: 2, Ending: &messages.Ending{Since: w.now}}); n != 1 {
		t.Fatalf("told %d times", n)
	}
	failed := messages.ContainerReported{UID: w.machine.uid, Name: pod.Spec.Containers[0].Name, StopFailed: "too busy"}
	if n := stops(time.Second, failed); n != 0 {
		t.Errorf("told %d times at once", n)
	}
	if n := stops(w.machine.Set.AnswerTimeout/3, nil); n != 1 {
		t.Errorf("told %d times after a third of the time", n)
	}
}

// A grace period that becomes shorter while the pod ends is sent to its containers; a longer one is not.
func TestAGracePeriodIsShortened(t *testing.T) {
	pod := cloudPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	end := func(generation uint64, grace int64) []messages.StopContainer {
		a.hears(messages.PodWanted{Pod: pod, Generation: generation, Ending: &messages.Ending{Since: w.now, Grace: &grace}})
		return sentOf[messages.StopContainer](a.take())
	}
	if stops := end(2, 300); len(stops) != 1 || stops[0].Grace != 300*time.Second {
		t.Fatalf("told to stop: %+v", stops)
	}
	a.now = a.now.Add(time.Second)
	for _, longer := range []int64{300, 600} {
		if stops := end(3, longer); len(stops) != 0 {
			t.Errorf("told of %d s: %+v", longer, stops)
		}
	}
	if stops := end(4, 5); len(stops) != 1 || stops[0].Grace != 5*time.Second {
		t.Errorf("told of the shorter one: %+v", stops)
	}
	a.now = a.now.Add(2 * time.Second)
	a.hears(nil)
	if stops := sentOf[messages.StopContainer](a.take()); len(stops) != 0 {
		t.Errorf("told again: %+v", stops)
	}
	if stops := end(5, 0); len(stops) != 1 || stops[0].Grace != time.Second {
		t.Errorf("told of none at all: %+v", stops)
	}
}

// A pod that the node ends has the grace period of that decision, even if it is deleted meanwhile. One longer than the pod's own
// has no effect.
func TestAnEvictedPodHasLittleTime(t *testing.T) {
	for grace, want := range map[int64]time.Duration{1: time.Second, 900: 600 * time.Second} {
		pod := cloudPod(v1.RestartPolicyAlways, 0, 1)
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		w := newWorld(pod)
		w.step(nil)
		w.settle()
		a := &alone{now: w.now, machine: w.machine}
		fail := &messages.PodFailure{Reason: messages.EventEvicted, Grace: &grace}
		a.hears(messages.PodWanted{Pod: pod, Generation: 2, Fail: fail})
		if stops := sentOf[messages.StopContainer](a.take()); len(stops) != 1 || stops[0].Grace != want {
			t.Errorf("with %d s told to stop: %+v", grace, stops)
		}
		a.hears(messages.PodWanted{Pod: pod, Generation: 3, Fail: fail, Ending: &messages.Ending{Since: w.now}})
		if stops := sentOf[messages.StopContainer](a.take()); len(stops) != 0 {
			t.Errorf("with %d s told again: %+v", grace, stops)
		}
	}
}

// A deleted pod gets its final phase, by its exit codes, when none of its containers runs, and not before.
func TestADeletedPodGetsItsFinalPhase(t *testing.T) {
	for code, want := range map[int32]v1.PodPhase{0: v1.PodSucceeded, 143: v1.PodFailed} {
		w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
		w.step(nil)
		w.settle()
		a := &alone{now: w.now, machine: w.machine}
		a.hears(messages.PodWanted{Pod: w.pod, Generation: 2, Ending: &messages.Ending{Since: w.now}})
		if s := a.machine.status(); s.Phase != v1.PodRunning {
			t.Errorf("while it runs it is %s", s.Phase)
		}
		a.hears(a.ended(ended(w, code)), work.SandboxStopped{ID: w.sandboxes[0].ID})
		if s := a.machine.status(); s.Phase != want || s.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("exit code %d: it is %s, %+v", code, s.Phase, s.ContainerStatuses[0].State)
		}
	}
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.ending = &messages.Ending{}
	w.send(w.desired())
	w.settle()
	if check(t, w); w.status.Phase != v1.PodRunning {
		t.Errorf("a pod of a manifest is %s", w.status.Phase)
	}
}

// A deleted pod without any parts here ends without a start.
func TestADeletedPodThatNeverRan(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 1, 1))
	w.ending = &messages.Ending{}
	w.step(nil)
	w.settle()
	if check(t, w); w.ended == nil || !w.ended.Gone || w.ended.Status.Phase != v1.PodFailed || w.seq > 0 {
		t.Errorf("it ended as %+v", w.ended)
	}
}

// A running pod that an authorized client set to Failed is ended, and does not run again.
func TestAPodThatOthersCallFailed(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.edits++
	w.pod = w.pod.DeepCopy()
	w.pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost", Message: "gone"}
	w.send(w.desired())
	w.settle()
	if check(t, w); w.ended == nil || w.ended.Gone || w.status.Phase != v1.PodFailed || w.status.Reason != "NodeLost" ||
		len(w.runningNames()) > 0 {
		t.Errorf("it is %+v, running %v", w.status, w.runningNames())
	}
}

// A finished pod, by its record, that still runs is ended, and its reported status stays.
func TestAFinishedPodThatRuns(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.final = &v1.PodStatus{Phase: v1.PodSucceeded, Message: "kept"}
	w.restart()
	w.settle()
	if check(t, w); w.machine.Phase() != Finished || w.status != w.final || len(w.runningNames()) > 0 {
		t.Errorf("it is %s, %+v, running %v", w.machine.Phase(), w.status, w.runningNames())
	}
}

// The API server may report the end of a pod before its removal is complete. An agent that finds such a pod stops its sandbox,
// and releases its volumes and its cgroup.
func TestFinishedPod_WithRemainingSandbox(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyNever, 0, 1))
	w.step(nil)
	w.settle()
	w.containers[0] = ended(w, 0)
	w.final = &v1.PodStatus{Phase: v1.PodSucceeded}
	w.restart()
	w.settle()
	if check(t, w); w.machine.Phase() != Finished || w.sandboxes[0].Ready || w.status != w.final {
		t.Errorf("it is %s, its sandbox %+v", w.machine.Phase(), w.sandboxes[0])
	}
	if len(w.containers) != 1 {
		t.Error("its dead container is gone, and the log with it")
	}
}

// The end of a pod that finished by itself is reported until the record is confirmed.
func TestAnEndIsReportedUntilItIsKept(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyNever, 0, 1))
	w.final = &v1.PodStatus{Phase: v1.PodSucceeded}
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	for _, unkept := range []bool{true, true, false} {
		a.hears(messages.PodWanted{Pod: w.pod, Generation: 9, Final: w.final, Unkept: unkept})
		a.passes(time.Hour)
		if n := len(sentOf[messages.PodEnded](a.take())); (n > 0) != unkept {
			t.Errorf("unkept %v: it is told %d times", unkept, n)
		}
	}
}

// A status continues after a restart: none of its conditions changes, whichever agent ran the pod before.
func TestAStatusOutlivesTheAgent(t *testing.T) {
	pod := cloudPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].StartupProbe = &v1.Probe{}, &v1.Probe{}
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	if check(t, w); !allReady(w.status) {
		t.Fatalf("it is not ready: %+v", w.status)
	}
	before := w.status
	w.now = w.now.Add(time.Hour)
	w.last = before
	clear(w.words) // a kubelet ran it, and no results of its probes were kept
	var seen []string
	w.watch = func(s *v1.PodStatus) {
		for i := range s.Conditions {
			if now, was := s.Conditions[i], before.Conditions[i]; now.Status != was.Status ||
				!now.LastTransitionTime.Equal(&was.LastTransitionTime) {
				seen = append(seen, string(now.Type)+"="+string(now.Status)+now.LastTransitionTime.String())
			}
		}
		if !s.StartTime.Equal(before.StartTime) {
			seen = append(seen, "started "+s.StartTime.String())
		}
	}
	w.restart()
	w.settle()
	if check(t, w); len(seen) > 0 {
		t.Errorf("it was told: %s", strings.Join(seen, ", "))
	}
}

// Restart counts that the runtime has lost are restored from the status.
func TestRestartsAreCountedOn(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
	started := metav1.NewTime(w.now.Add(-time.Hour).Truncate(time.Second))
	w.last = &v1.PodStatus{
		StartTime: &started, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue,
			LastTransitionTime: started}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c0", ContainerID: "sim://lost", RestartCount: 6}},
	}
	w.step(nil)
	w.settle()
	check(t, w)
	if s := w.status; s.ContainerStatuses[0].RestartCount != 7 || !s.StartTime.Equal(&started) {
		t.Errorf("%+v", s)
	}
	for _, c := range w.status.Conditions {
		if c.Type == v1.PodScheduled && !c.LastTransitionTime.Equal(&started) {
			t.Errorf("%+v", c)
		}
	}
}

// A pod is ready only when its readiness gates are open, too (KEP-580).
func TestReadinessGates(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
	w.pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/a"}, {ConditionType: "example.com/b"}}
	w.step(nil)
	w.settle()
	ready := func() string {
		for _, c := range w.status.Conditions {
			if c.Type == v1.PodReady {
				return string(c.Status) + " " + c.Reason + " " + c.Message
			}
		}
		return ""
	}
	open := func(status v1.ConditionStatus, types ...v1.PodConditionType) {
		w.edits++
		w.pod = w.pod.DeepCopy()
		for _, ct := range types {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, v1.PodCondition{Type: ct, Status: status})
		}
		w.send(w.desired())
		w.settle()
	}
	if got := ready(); !strings.HasPrefix(got, "False ReadinessGatesNotReady ") || !strings.Contains(got, "example.com/b") {
		t.Errorf("closed: %s", got)
	}
	open(v1.ConditionTrue, "example.com/a")
	if got := ready(); !strings.HasPrefix(got, "False ") || strings.Contains(got, "example.com/a") {
		t.Errorf("one is open: %s", got)
	}
	open(v1.ConditionTrue, "example.com/b")
	if got := ready(); got != "True  " {
		t.Errorf("both are open: %s", got)
	}
	check(t, w)
	if len(w.stops) > 0 {
		t.Errorf("stopped: %v", w.stops)
	}
}

// deletedCloudPod returns a deleted pod of the API server.
func deletedCloudPod(policy v1.RestartPolicy, init, regular int) *v1.Pod {
	p := cloudPod(policy, init, regular)
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

// The runtime forgets how the containers of a deleted pod ended only after its object is gone, or its final status is on disk. An
// agent that is killed before reads the exit codes again.
func TestAnEndIsKeptBeforeItIsForgotten(t *testing.T) {
	removes := func(fx []Effect) (n int) {
		for _, e := range fx {
			if _, ok := e.(work.RemovePod); ok {
				n++
			}
		}
		return n
	}
	for _, objectGone := range []bool{true, false} {
		w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
		w.step(nil)
		w.settle()
		a := &alone{now: w.now, machine: w.machine}
		ending := messages.PodWanted{Pod: deletedCloudPod(v1.RestartPolicyAlways, 0, 1), Generation: 2,
			Ending: &messages.Ending{Since: w.now}}
		a.hears(ending, a.ended(ended(w, 3)), work.SandboxStopped{ID: w.sandboxes[0].ID})
		a.hears(messages.VolumesUnmounted{UID: "u1", Removed: true})
		if reports := sentOf[messages.PodEnded](a.take()); len(reports) > 0 {
			t.Fatalf("reported before the cgroup is removed: %+v", reports)
		}
		a.hears(messages.PodCgroupRemoved{UID: "u1"})
		fx := a.take()
		reports := sentOf[messages.PodEnded](fx)
		if len(reports) != 1 || reports[0].Gone || !reports[0].Released || reports[0].Status.Phase != v1.PodFailed ||
			reports[0].Status.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Fatalf("got reports %+v, want one of the release", reports)
		}
		if removes(fx) != 0 {
			t.Error("removed before the API server has the status")
		}
		a.now = a.now.Add(time.Hour)
		a.hears(nil)
		if fx = a.take(); len(sentOf[messages.PodEnded](fx)) != 1 || removes(fx) != 0 {
			t.Error("the report is not repeated, or the pod is removed")
		}
		ending.Generation = 3
		if objectGone {
			ending.ObjectGone = true
		} else {
			ending.Final, ending.Unkept = reports[0].Status, true
			a.hears(ending)
			a.passes(time.Hour)
			if fx = a.take(); len(sentOf[messages.PodEnded](fx)) != 1 || removes(fx) != 0 {
				t.Error("the status is not on disk yet, and the report is not repeated, or the pod is removed")
			}
			ending.Generation, ending.Unkept = 4, false
		}
		a.hears(ending)
		if fx = a.take(); removes(fx) != 1 {
			t.Errorf("object gone %v: the pod is not removed", objectGone)
		}
		a.hears(work.PodRemoved{})
		if reports = sentOf[messages.PodEnded](a.take()); len(reports) != 1 || !reports[0].Gone ||
			ending.Final != nil && reports[0].Status != ending.Final {
			t.Errorf("object gone %v: got reports %+v, want one of the end", objectGone, reports)
		}
	}
}

// A start that the runtime completes late leaves a container that keeps the pod's volumes busy. The removal stops it, before the
// pod is released.
func TestCleaning_LateContainer(t *testing.T) {
	w := newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	a := &alone{now: w.now, machine: w.machine}
	end := ended(w, 3)
	ending := messages.PodWanted{Pod: deletedCloudPod(v1.RestartPolicyAlways, 0, 1), Generation: 2,
		Ending: &messages.Ending{Since: w.now}}
	a.hears(ending, a.ended(end), work.SandboxStopped{ID: w.sandboxes[0].ID})
	late := end
	late.ID, late.Attempt, late.State, late.CreatedAt = "late", end.Attempt+1, messages.ContainerRunning, a.now
	a.now = a.now.Add(time.Second)
	a.observes(a.sandboxFacts(), late, end)
	fx := a.take()
	if reports := sentOf[messages.PodEnded](fx); len(reports) != 1 || reports[0].Released || reports[0].Gone ||
		len(effects[work.RemovePod](fx)) != 0 {
		t.Fatalf("got reports %+v and %d removals, want the status for the disk alone", reports, len(effects[work.RemovePod](fx)))
	}
	// It has no busy volume after all.
	a.hears(messages.VolumesUnmounted{UID: "u1", Removed: true}, messages.PodCgroupRemoved{UID: "u1"})
	a.passes(time.Minute)
	for _, r := range sentOf[messages.PodEnded](a.take()) {
		if r.Released {
			t.Errorf("got %+v while a container runs", r)
		}
	}
	ending.Generation, ending.Final = 3, &v1.PodStatus{Phase: v1.PodFailed} // on disk
	a.hears(ending)
	if n := len(effects[work.RemovePod](a.take())); n != 1 {
		t.Errorf("got %d removals while the container runs, want 1", n)
	}
	a.hears(work.PodRemoved{})
	a.observes(nil)
	if reports := sentOf[messages.PodEnded](a.take()); len(reports) != 1 || !reports[0].Gone {
		t.Errorf("got reports %+v, want one of the end", reports)
	}
}

// lastly returns another agent's status of one container that has ended or is in back-off.
func lastly(held bool) *v1.PodStatus {
	end := &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "bad",
		FinishedAt: metav1.NewTime(time.Unix(100, 0))}
	c := v1.ContainerStatus{Name: "c0", ContainerID: "sim://old", RestartCount: 2, State: v1.ContainerState{Terminated: end}}
	if held {
		c.State, c.LastTerminationState = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			c.State
	}
	return &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{c}}
}

// The end of a container that the runtime has lost is restored from the status, not guessed.
func TestAnEndThatOnlyTheStatusKnows(t *testing.T) {
	for _, held := range []bool{false, true} {
		w := newWorld(deletedCloudPod(v1.RestartPolicyAlways, 0, 1))
		w.ending, w.last = &messages.Ending{}, lastly(held)
		w.step(nil)
		w.settle()
		check(t, w)
		end := w.ended.Status.ContainerStatuses[0].State.Terminated
		if !w.ended.Gone || end == nil || end.ExitCode != 3 || end.Message != "bad" ||
			w.ended.Status.ContainerStatuses[0].RestartCount != 2 {
			t.Errorf("held %v: it ended as %+v", held, w.ended.Status.ContainerStatuses)
		}
	}
	w := newWorld(cloudPod(v1.RestartPolicyNever, 0, 1)) // it is over, and does not run again
	w.last = lastly(false)
	w.step(nil)
	w.settle()
	if check(t, w); w.ended == nil || w.ended.Gone || w.ended.Status.Phase != v1.PodFailed || len(w.containers) > 0 {
		t.Errorf("it ended as %+v, with %v", w.ended, w.containers)
	}
	w = newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1)) // it starts again as the next attempt
	w.last = lastly(false)
	w.step(nil)
	w.settle()
	if check(t, w); len(w.containers) != 1 || w.containers[0].Attempt != 3 {
		t.Errorf("there are %+v", w.containers)
	}
}

// A container that was removed from the runtime while the pod went on was reported as ended for good. It does not run again when
// the agent restarts: the API server would refuse that state. An ephemeral one never runs twice (kubernetes/kubernetes#124176).
func TestSeedEnd_RemovedContainers(t *testing.T) {
	pod := cloudPod(v1.RestartPolicyNever, 0, 2)
	w := newWorld(debugged(debugged(pod, "debug", ""), "lost", ""))
	gone := &v1.ContainerStateTerminated{ExitCode: 137, Reason: messages.ReasonUnknown}
	of := func(name string, state v1.ContainerState) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, ContainerID: "sim://" + name, State: state}
	}
	w.last = &v1.PodStatus{Phase: v1.PodRunning,
		ContainerStatuses: []v1.ContainerStatus{of("c0", v1.ContainerState{Terminated: gone})},
		EphemeralContainerStatuses: []v1.ContainerStatus{of("debug", v1.ContainerState{Terminated: gone}),
			of("lost", v1.ContainerState{Running: &v1.ContainerStateRunning{}})}}
	w.step(nil)
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("running: %v, want c1 alone, which had not run", got)
	}
	if got := w.status.EphemeralContainerStatuses; len(got) != 2 || got[0].State.Terminated == nil || got[1].State.Terminated == nil {
		t.Errorf("got %+v, want both ephemeral containers ended", got)
	}
	w = newWorld(cloudPod(v1.RestartPolicyAlways, 0, 1)) // a guess delays no start
	w.last = &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{of("c0", v1.ContainerState{Terminated: gone})}}
	w.step(nil)
	w.settle()
	if check(t, w); len(w.containers) != 1 || w.containers[0].Attempt != 1 || w.status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("got %+v, %+v, want the next attempt", w.containers, w.status.ContainerStatuses)
	}
}
