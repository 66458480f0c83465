package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/starts"
	"github.com/playlet-dev/playlet/messages"
)

// drain delivers all messages without advancing the clock.
func (w *world) drain() {
	for i := 0; i < 1000; i++ {
		if w.live(); len(w.pending) == 0 {
			return
		}
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
}

// As with the kubelet, a sidecar in back-off delays only containers that were not created yet.
func TestASidecarInBackOffKeepsNobodyWaiting(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 3, 1)
	pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	w := newWorld(pod)
	crash, done := false, false
	w.exit = func(name string, attempt uint32) (int32, bool) {
		switch name {
		case "init0":
			return 1, crash
		case "init1":
			return int32(1 - min(attempt, 1)), done
		case "init2":
			return 0, true
		}
		return 0, false
	}
	w.step(nil)
	w.settle()
	crash = true
	w.drain()
	if got := w.runningNames(); !slices.Equal(got, []string{"init1"}) {
		t.Fatalf("running %v", got)
	}
	done = true
	w.drain()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c0"}) {
		t.Errorf("running %v", got)
	}
	crash = false
	w.settle()
	check(t, w)
	if got := w.runningNames(); !slices.Equal(got, []string{"c0", "init0"}) {
		t.Errorf("in the end %v run", got)
	}
}

// A lost report of the status is repeated.
func TestAStatusThatIsLostIsReportedAgain(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.status = nil
	w.settle() // audits, without a change
	if w.status == nil || w.status.Phase != v1.PodRunning {
		t.Errorf("after the next audits it is %+v", w.status)
	}
	for range 2 {
		w.status = nil
		w.step(w.desired()) // pods has not received its confirmation
		if w.status == nil {
			t.Error("the desired state was sent again, and no status")
		}
	}
}

// A start with an unreadable outcome may have created a running container. It is looked up before the sandbox is stopped, and
// ended with its grace period.
func TestFailedStart_WithoutMessageMayRun(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.blind = true
	w.step(nil)
	for i := 0; i < 1000; i++ {
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
		if r, ok := m.(messages.ContainerReported); ok && r.Failed != nil {
			break
		}
	}
	if got := w.runningNames(); !slices.Equal(got, []string{"c0"}) {
		t.Fatalf("running %v", got)
	}
	w.ending = &messages.Ending{Reason: "test"}
	w.step(w.desired())
	w.settle()
	check(t, w)
	if len(w.stops) != 1 || w.ended == nil {
		t.Errorf("stopped %v", w.stops)
	}
}

// A container's actor fails, the container is removed from outside, and another is created without a report. The late report of
// the first start is not the last one, and the sandbox is not stopped while a container runs in it.
func TestAnswer_ToAnEarlierIncarnationIsNotFinal(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	for len(w.runningNames()) == 0 {
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
	late := w.pending
	w.pending, w.containers, w.blind, w.removed["c00"] = nil, nil, true, true
	w.fall("c0")
	w.step(w.pending[0])
	w.pending = nil
	if got := w.runningNames(); !slices.Equal(got, []string{"c0"}) {
		t.Fatalf("running %v", got)
	}
	for _, m := range late {
		w.step(m)
	}
	w.ending = &messages.Ending{Reason: "test"}
	w.step(w.desired())
	w.settle()
	check(t, w)
	if w.ended == nil || len(w.containers) > 0 {
		t.Errorf("it has ended: %v, with %v left", w.ended, w.containers)
	}
}

// The actor fails while a start is in progress, and the spec has changed. Before the next attempt begins, a reading shows whether
// the earlier one runs.
func TestUnknownStart_BlocksOtherAttempts(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.halfway = 1
	w.step(nil)
	w.drain() // it is created, and did not start
	w.blind = true
	for range 100 { // until it is retried, and runs
		w.now = w.now.Add(time.Second)
		w.step(nil)
		for i := 0; len(w.pending) > 0 && i < 100 && len(w.runningNames()) == 0; i++ {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
		}
		if len(w.runningNames()) > 0 {
			break
		}
	}
	if got := w.runningNames(); !slices.Equal(got, []string{"c0"}) {
		t.Fatalf("running %v", got)
	}
	w.pending = nil // its report comes too late
	w.edit(func(s *v1.PodSpec) { s.Containers[0].Image += "'" })
	w.step(w.pending[0])
	w.pending = w.pending[1:]
	w.step(messages.ChildStarted{Name: "c0", Again: true})
	w.settle()
	check(t, w)
	if got := w.status.ContainerStatuses[0]; got.State.Running == nil || got.Image != "image'" {
		t.Errorf("%+v", got)
	}
}

// The outcome of a start is lost, and a reading then shows the container as exited. It counts as any other end: restartPolicy and
// the back-off apply.
func TestLostStart_EndIsAnswered(t *testing.T) {
	for policy, code := range map[v1.RestartPolicy]int32{v1.RestartPolicyNever: 0, v1.RestartPolicyOnFailure: 0,
		v1.RestartPolicyAlways: 1} {
		a := newReady(testPod(policy, 0, 2))
		image := pulled("c0", "image")
		for attempt := range 2 {
			image.Key.Attempt = uint32(attempt)
			a.hears(image)
			runs := sentOf[messages.RunContainer](a.take())
			if len(runs) != 1 {
				t.Fatalf("%s, attempt %d: told %+v", policy, attempt, runs)
			}
			a.hears(messages.ContainerReported{
				UID: "u1", Name: "c0", Generation: runs[0].Generation,
				Failed: &messages.Reason{Code: messages.ReasonRunContainer, Message: "its status cannot be read"},
			})
			a.now = a.now.Add(time.Microsecond)
			f := madeIn(a, "c0", messages.ContainerExited)
			f.ID, f.Attempt, f.ExitCode, f.FinishedAt = fmt.Sprintf("c0-%d", attempt), uint32(attempt), code, a.now
			a.observes(a.sandboxFacts(), f)
			early := sentOf[messages.RunContainer](a.take())
			if policy != v1.RestartPolicyAlways {
				a.passes(time.Minute)
				image.Key.Attempt++
				a.hears(image)
				if again := sentOf[messages.RunContainer](a.take()); len(early)+len(again) > 0 ||
					a.machine.Container("c0").Retry.Failed != nil {
					t.Errorf("%s: it is restarted: %+v, %+v", policy, early, again)
				}
				break
			}
			image.Key.Attempt = uint32(attempt) + 1
			if what, at := a.machine.starts().Blocker(a.machine.Container("c0")); attempt == 1 &&
				(what != starts.BackingOff || at.Sub(a.now) != 10*time.Second) {
				t.Errorf("attempt %d: it waits for %q until %s", attempt, what, at)
			}
		}
	}
}

// The report that the prober has lost the pod may be lost. With an audit it receives the list of probes again, unless it has just
// answered.
func TestAProberThatForgotHearsAgain(t *testing.T) {
	w := newWorld(probedPod(v1.RestartPolicyAlways, messages.Readiness))
	w.step(nil)
	w.drain()
	w.watched = nil
	w.step(w.observed())
	if w.watched != nil {
		t.Error("it was heard just before, and is told again")
	}
	w.settle() // audits
	check(t, w)
	if w.watched == nil || !allReady(w.status) {
		t.Errorf("it was told %+v, and the pod has %+v", w.watched, w.status.Conditions)
	}
}

// The report that volumes has lost the pod may be lost. With an audit the request is repeated, once, unless it has just answered.
func TestVolumesThatForgotIsAskedAgain(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.take()
	asked := func() int { return len(sentOf[messages.MountVolumes](a.take())) }
	audit := func() { a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: a.now}}) }
	if audit(); asked() != 0 {
		t.Error("it was heard just before, and is asked again")
	}
	a.now = a.now.Add(reportAgain)
	if audit(); asked() != 1 {
		t.Error("it is not asked again")
	}
	if audit(); asked() != 0 {
		t.Error("it is asked twice")
	}
	a.hears(messages.VolumesMounted{UID: "u1"})
	if audit(); asked() != 0 {
		t.Error("it has answered, and is asked again")
	}
}

// A prober that has not lost the pod receives its end, since the last list is kept.
func TestADoubtedProberHearsOfAnEnd(t *testing.T) {
	w := newWorld(probedPod(v1.RestartPolicyAlways, messages.Readiness))
	w.step(nil)
	w.settle()
	m := w.machine
	m.now = m.probing.ackedAt.Add(reportAgain)
	m.renewProbes()
	if m.probing.sent == nil || m.probing.ackedGeneration == m.probing.generation {
		t.Errorf("it knows of %+v, and is not asked again", m.probing.sent)
	}
}

// A running container is removed from outside before its adoption. Its actor reports that, and the pod is read without waiting
// for an audit.
func TestLostContainer_ThatCannotBeAdoptedIsRead(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	image := pulled("c0", "image")
	a.hears(image)
	first := sentOf[messages.RunContainer](a.take())[0]
	a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: first.Generation,
		Failed: &messages.Reason{Code: messages.ReasonRunContainer, Message: "its status cannot be read"}})
	a.now = a.now.Add(time.Second)
	a.hears(started(madeIn(a, "c0", messages.ContainerRunning)))
	second := sentOf[messages.RunContainer](a.take())
	if len(second) != 1 || second[0].Adopt == nil {
		t.Fatalf("told %+v", second)
	}
	a.observes(a.sandboxFacts(), madeIn(a, "c0", messages.ContainerRunning)) // before its removal
	a.take()
	failed := messages.ContainerReported{UID: "u1", Name: "c0", Generation: second[0].Generation,
		Failed: &messages.Reason{Code: messages.ReasonRunContainer, Message: "no container"}}
	a.hears(failed)
	a.now = a.now.Add(time.Second)
	a.observes(a.sandboxFacts(), madeIn(a, "c0", messages.ContainerRunning))
	a.take()
	a.now = a.now.Add(time.Minute)
	a.hears(nil)
	if again := sentOf[messages.RunContainer](a.take()); len(again) != 1 || again[0].Generation == failed.Generation || again[0].Adopt == nil {
		t.Fatalf("of one that is there after all its actor is told %+v", again)
	} else {
		second = again
	}
	a.hears(messages.ContainerReported{UID: "u1", Name: "c0", Generation: second[0].Generation,
		Failed: &messages.Reason{Code: messages.ReasonRunContainer, Message: "no container"}})
	if reads := sentOf[messages.ReadPod](a.take()); len(reads) != 1 {
		t.Errorf("it is read %d times", len(reads))
	}
	a.now = a.now.Add(time.Second)
	a.observes(a.sandboxFacts())
	if ends := sentOf[messages.RunContainer](a.take()); len(ends) != 1 || ends[0].Adopt.State != messages.ContainerExited {
		t.Errorf("its actor is told %+v", ends)
	}
}
