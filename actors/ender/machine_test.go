package ender

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
)

// world is the environment of the machine. Answers wait in pending, so that a test can lose, duplicate or delay them.
type world struct {
	t       interface{ Errorf(string, ...any) }
	now     time.Time
	machine *machine
	wanted  messages.PodWanted
	pending []any
	alive   bool
	there   bool // the runtime has objects of the pod
	mounted bool
	group   bool
	claimed bool  // its ResourceClaims are in use
	hung    bool  // they cannot be released
	kept    bool  // the final status is on the disk
	fail    error // of work
	ended   *messages.PodEnded
	wake    time.Time // when the machine's timer fires
}

func newWorld(t interface{ Errorf(string, ...any) }) *world {
	now := metav1.NewTime(time.Unix(1_000_000, 0))
	status := func(name string) v1.ContainerStatus {
		return v1.ContainerStatus{
			Name: name, ContainerID: "sim://" + name, Ready: true, Started: new(true),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		}
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", DeletionTimestamp: &now},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}, ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}},
			TerminationGracePeriodSeconds: new(int64(30))},
	}
	return &world{
		t: t, now: now.Time, machine: newMachine("u"), alive: true, there: true, mounted: true, group: true, claimed: true,
		wanted: messages.PodWanted{
			Pod: pod, Generation: 1, Ending: &messages.Ending{Since: now.Time, Grace: new(int64(5))},
			Last: &v1.PodStatus{
				Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{status("a"), status("b")},
				Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			},
		},
	}
}

func (w *world) step(msg any) {
	for _, e := range w.machine.step(w.now, msg) {
		switch e := e.(type) {
		case transition:
			if edges[e.from] != e.to {
				w.t.Errorf("edge %s to %s", e.from, e.to)
			}
		case stop:
			if w.fail == nil {
				w.alive = false
			}
			w.pending = append(w.pending, stopResult{e.grace, w.fail})
		case remove:
			if w.alive || !w.kept {
				w.t.Errorf("removed while it runs (%v), or before its final status is kept (%v)", w.alive, w.kept)
			}
			if w.fail == nil {
				w.there = false
			}
			w.pending = append(w.pending, removeResult{w.fail})
		case tell:
			w.published(e.msg)
		case wake:
			if w.wake = e.at; !e.at.After(w.now) {
				w.t.Errorf("the timer would fire at once, again and again")
			}
		}
	}
}

func (w *world) published(msg any) {
	answer := func(m any) { w.pending = append(w.pending, m) }
	switch m := msg.(type) {
	case messages.GetDesired:
		answer(w.wanted)
	case messages.ReadPod:
		answer(messages.PodObserved{Facts: w.facts()})
	case messages.UnmountVolumes:
		if w.alive {
			w.t.Errorf("unmounted while it runs")
		}
		w.mounted = false
		answer(messages.VolumesUnmounted{UID: m.UID, Removed: m.Remove})
	case messages.ReleaseClaims:
		if w.alive {
			w.t.Errorf("its claims are released while it runs")
		}
		if w.hung {
			answer(messages.ClaimsFailed{UID: m.UID, Release: true, Reason: messages.Reason{Message: "no power"}})
			return
		}
		w.claimed = false
		answer(messages.ClaimsReleased{UID: m.UID})
	case messages.RemovePodCgroup:
		if w.there || w.mounted || w.claimed {
			w.t.Errorf("its cgroup is removed first")
		}
		w.group = false
		answer(messages.PodCgroupRemoved{UID: m.UID})
	case messages.PodEnded:
		if m.Gone {
			w.ended = &m
			return
		}
		if w.claimed {
			w.t.Errorf("its end is recorded while it has claims")
		}
		w.kept, w.wanted.Final = true, m.Status
		answer(w.wanted)
	}
}

func (w *world) facts() messages.PodFacts {
	f := messages.PodFacts{UID: "u", ReadAt: w.now}
	if !w.there {
		return f
	}
	f.Sandboxes = []messages.SandboxFact{{ID: "s", Ready: w.alive}}
	for i, name := range []string{"a", "b"} {
		c := messages.ContainerFact{ID: name, Name: name, State: messages.ContainerRunning, StartedAt: w.now.Add(-time.Hour)}
		if !w.alive {
			c.State, c.ExitCode, c.FinishedAt = messages.ContainerExited, int32(i), w.now
		}
		f.Containers = append(f.Containers, c)
	}
	return f
}

func (w *world) settle() {
	for range 200 {
		if len(w.pending) == 0 {
			if w.wake.After(w.now) { // otherwise only a message can help
				w.now = w.wake
			}
			w.step(nil)
			continue
		}
		m := w.pending[0]
		w.pending = w.pending[1:]
		w.step(m)
	}
}

func (w *world) check() {
	if w.ended == nil || w.there || w.mounted || w.group || w.claimed {
		w.t.Errorf("in state %s: ended %v; there %v, mounted %v, cgroup %v", w.machine.state, w.ended, w.there, w.mounted,
			w.group)
		return
	}
	s := w.ended.Status
	if s == nil || s.Phase != v1.PodFailed || s.Conditions[0].Status != v1.ConditionFalse {
		w.t.Errorf("its final status is %+v", s)
		return
	}
	for i, c := range s.ContainerStatuses {
		if c.Ready || c.State.Terminated == nil || c.State.Terminated.ExitCode != int32(i) {
			w.t.Errorf("container %s: %+v", c.Name, c.State)
		}
	}
}

func TestAPodIsEnded(t *testing.T) {
	w := newWorld(t)
	w.step(nil)
	w.settle()
	w.check()
}

// A pod that the node has failed stays in the cluster, so its containers' ends are on disk before the runtime forgets them.
func TestAFailedPodIsEnded(t *testing.T) {
	w := newWorld(t)
	w.wanted.Pod.DeletionTimestamp, w.wanted.Fail = nil, &messages.PodFailure{Reason: messages.ReasonPreempting}
	w.step(nil)
	w.settle()
	w.check()
}

// Failed work is reported and retried until it succeeds.
func TestWorkThatFailsIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.fail = errors.New("the runtime is away")
	w.step(nil)
	w.settle()
	if w.machine.state != stopping || w.machine.failure == "" {
		t.Fatalf("it is %s, failure %q", w.machine.state, w.machine.failure)
	}
	w.fail = nil
	w.settle()
	w.check()
}

// A driver that cannot unprepare the pod's claims is named, and the pod's end waits for it.
func TestClaimsThatAreNotReleased(t *testing.T) {
	w := newWorld(t)
	w.hung = true
	w.step(nil)
	w.settle()
	if w.machine.state != releasing || w.machine.failure != "no power" {
		t.Fatalf("it is %s, failure %q", w.machine.state, w.machine.failure)
	}
	w.hung = false
	w.settle()
	w.check()
}

// The grace period does not run while the runtime is away: a repeated stop has all of it.
func TestTheGracePeriodWaitsForTheRuntime(t *testing.T) {
	w := newWorld(t)
	var stops []time.Duration
	for _, msg := range []any{w.wanted, stopResult{5 * time.Second, errors.New("the runtime is away")}, nil} {
		for _, e := range w.machine.step(w.now, msg) {
			if s, is := e.(stop); is {
				stops = append(stops, s.until.Sub(w.now))
			}
		}
		w.now = w.now.Add(retry.First)
	}
	if !slices.Equal(stops, []time.Duration{5 * time.Second, 5 * time.Second}) {
		t.Errorf("stopped within %v, want 5s twice", stops)
	}
}

// A successful stop is repeated only after a reading finds something alive, and after a rest.
func TestAStopIsNotRepeatedWithoutARest(t *testing.T) {
	w := newWorld(t)
	m, stops := w.machine, 0
	step := func(msg any) {
		for _, e := range m.step(w.now, msg) {
			if _, is := e.(stop); is {
				stops++
			}
		}
	}
	reading := func(began time.Time) messages.PodObserved {
		f := w.facts()
		f.ReadAt = began
		return messages.PodObserved{Facts: f}
	}
	step(w.wanted)
	w.now = w.now.Add(time.Second)
	step(reading(w.now)) // the stop is in progress
	step(stopResult{grace: m.grace})
	w.now = w.now.Add(time.Second)
	step(reading(w.now.Add(-2 * time.Second))) // began before the stop ended
	if stops != 1 {
		t.Fatalf("stopped %d times", stops)
	}
	for n, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		step(reading(w.now))
		if step(nil); stops != n+1 || m.failure == "" {
			t.Fatalf("after reading %d: stopped %d times, failure %q", n, stops, m.failure)
		}
		w.now = w.now.Add(rest)
		if step(nil); stops != n+2 {
			t.Fatalf("%s later: stopped %d times", rest, stops)
		}
		step(stopResult{grace: m.grace})
	}
	w.alive = false
	if step(reading(w.now)); m.state == stopping {
		t.Error("it goes on stopping")
	}
}

// Any message may be lost, duplicated or late, and the actor may be killed at any of them.
func TestTheEndConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.step(nil)
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			var msg any
			if len(w.pending) > 0 {
				i := rapid.IntRange(0, len(w.pending)-1).Draw(rt, "which")
				msg = w.pending[i]
				if rapid.IntRange(0, 3).Draw(rt, "doubled") > 0 {
					w.pending = append(w.pending[:i:i], w.pending[i+1:]...)
				}
			}
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0: // the message is lost
			case 1:
				w.machine, w.pending = newMachine("u"), nil
				w.step(nil)
			case 2:
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(rt, "seconds")) * time.Second)
				w.step(nil)
			case 3:
				w.wanted.Generation++
				grace := int64(rapid.IntRange(0, 5).Draw(rt, "grace"))
				w.wanted.Ending = &messages.Ending{Since: w.now, Grace: &grace}
				w.step(w.wanted)
			default:
				w.step(msg)
			}
		}
		w.settle()
		w.check()
	})
}
