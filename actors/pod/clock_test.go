package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// jumps are what a wall clock may do.
var jumps = []time.Duration{-2 * time.Hour, 0, 2 * time.Hour}

// After the clock was set back by two hours, and a restart of the agent, a removal from outside is still noticed.
func TestAClockSetBackHidesNoLoss(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.now = w.now.Add(-2 * time.Hour)
	w.restart()
	w.settle()
	before, began := w.sandboxes[0].ID, w.now
	w.sandboxes, w.containers = nil, nil // crictl rmp -f
	w.send(w.observed())
	w.settle()
	check(t, w)
	if took := w.containers[0].StartedAt.Sub(began); took > time.Minute {
		t.Errorf("it was missed for %s", took)
	}
	if len(w.sandboxes) != 1 || w.sandboxes[0].ID == before || !slices.Equal(w.runningNames(), []string{"c0"}) {
		t.Errorf("sandboxes %+v, running %v", w.sandboxes, w.runningNames())
	}
}

// A reading that began before an object was created does not prove that it is gone.
func TestAReadingThatBeganBeforeMissesNothing(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	began := a.now
	a.now = a.now.Add(time.Second)
	a.hears(pulled("c0", "image"), started(messages.ContainerFact{
		ID: "k1", Name: "c0", SandboxID: "s1", State: messages.ContainerRunning, CreatedAt: began.Add(-time.Hour), Image: "image",
	}))
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: began}})
	if a.machine.Current() == nil || !a.machine.Container("c0").Running() {
		t.Errorf("it is believed gone: %+v", a.machine.Inspect())
	}
}

// The state of sandboxes and containers does not grow with the number of past ones.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	for range 20 {
		w.sandboxes[0].Ready = false
		w.killIn(w.sandboxes[0].ID)
		w.send(w.observed())
		w.settle()
		w.sandboxes, w.containers = w.sandboxes[:1], w.containers[:1] // the collector
		w.send(w.observed())
		w.settle()
	}
	check(t, w)
	m := w.machine
	if kept := fmt.Sprint(len(m.Sandboxes.All), len(m.Container("c0").Attempts), len(m.asks)); kept != "1 2 0" {
		t.Errorf("kept: %s; %+v", kept, m.asks)
	}
}

// A clock that is set during the back-off of a container changes nothing of its wait.
func TestBackOff_ClockSetDuringTheWait(t *testing.T) {
	for _, jump := range jumps {
		w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
		w.now = supervisortest.Monotonic(w.now)
		w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 2 }
		var waits, runs time.Time
		w.watch = func(s *v1.PodStatus) {
			switch c := s.ContainerStatuses[0]; {
			case c.State.Waiting != nil && c.State.Waiting.Reason == messages.ReasonCrashLoopBackOff && waits.IsZero():
				waits, w.jumped = w.now, jump
			case c.State.Running != nil && !waits.IsZero() && runs.IsZero():
				runs = w.now
			}
		}
		w.step(nil)
		w.settle()
		check(t, w)
		if took := runs.Sub(waits).Round(time.Second); runs.IsZero() || took != 10*time.Second {
			t.Errorf("clock set by %s: started again after %s, want 10s", jump, took)
		}
	}
}

// A clock that is set while a container runs resets its back-off only if it has run for long.
func TestBackOff_ClockSetBetweenEnds(t *testing.T) {
	for _, jump := range jumps {
		for ran, want := range map[time.Duration]int{time.Minute: 3, time.Hour: 1} {
			w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
			w.now = supervisortest.Monotonic(w.now)
			w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 2 }
			w.step(nil)
			w.settle()
			w.now, w.jumped = w.now.Add(ran), jump
			w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 3 }
			w.settle()
			check(t, w)
			if got := w.machine.Container("c0").Backoff.Step; got != want {
				t.Errorf("clock set by %s, ended after %s: step %d of the back-off, want %d", jump, ran, got, want)
			}
		}
	}
}

// activeDeadlineSeconds are monotonic while the agent lives, over restarts of the pod's actor too. After a restart of the agent,
// a clock that was set back grants the pod no more than its whole time again.
func TestDeadline_ClockSet(t *testing.T) {
	for _, jump := range jumps {
		pod := testPod(v1.RestartPolicyAlways, 0, 1)
		pod.Spec.ActiveDeadlineSeconds = new(int64(3 * 3600))
		w := newWorld(pod)
		w.now = supervisortest.Monotonic(w.now)
		w.step(nil)
		began := w.now
		w.settle()
		start := w.status.StartTime.Round(0)
		left := func(when string, want time.Duration) {
			t.Helper()
			check(t, w)
			at, _ := w.machine.Deadline()
			if got := at.Sub(w.now) + w.now.Sub(began); (got - want).Abs() > 2*time.Second {
				t.Errorf("clock set by %s: %s it has %s in all, want %s", jump, when, got, want)
			}
			if !w.status.StartTime.Round(0).Equal(start) {
				t.Errorf("clock set by %s: %s it started at %s, want %s", jump, when, w.status.StartTime, start)
			}
		}
		w.jumped += jump
		w.send(w.observed())
		w.settle()
		left("in the same life", 3*time.Hour)
		for _, first := range []string{"pods", "the runtime"} {
			w.last = w.status
			w.restart()
			if first == "the runtime" {
				slices.Reverse(w.pending)
			}
			w.settle()
			left("after a restart of the actor, which "+first+" answers first,", 3*time.Hour)
		}

		w.last = w.status.DeepCopy()
		w.last.StartTime.Time = start
		passed := w.now.Sub(began)
		w.restart()
		w.step(nil)
		w.settle()
		want := 3*time.Hour - jump
		if jump < 0 {
			want = 3*time.Hour + passed // from now
		}
		left("after a restart of the agent", want)
		w.jumped += jump
		w.send(w.observed())
		w.settle()
		left("after a restart of the agent, set again", want)
	}
}
