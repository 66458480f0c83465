package container

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// A shortened grace period takes effect. The runtime kills a container that ignores its signal, and the hook is cut off. The
// caller with the longer grace period gets its answer, too.
func TestAShorterStopOvertakesALongerOne(t *testing.T) {
	for name, hook := range map[string]*v1.LifecycleHandler{
		"in the grace period": nil, "in a hook": {Sleep: &v1.SleepAction{Seconds: 3600}},
	} {
		t.Run(name, func(t *testing.T) {
			h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"},
				Script: sim.Script{Default: sim.Sequence{{Term: sim.Term{Ignore: true}}}}})
			m := hooked(t, h, hook)
			if hook == nil {
				m.Spec.Lifecycle = nil
			}
			m.Grace = time.Hour
			first := make(chan stopResult, 1)
			go func() { first <- stop(context.Background(), h, m) }()
			for len(h.Ops.InFlight("u1/stop/")) == 0 || (hook != nil && len(h.Ops.InFlight(host.PreStopKey(m.UID, m.Fact.ID))) == 0) {
				time.Sleep(time.Millisecond)
			}
			m.Grace = time.Second
			if done := stop(t.Context(), h, m); done.failed != nil || done.fact.State != messages.ContainerExited ||
				done.fact.ExitCode != 137 {
				t.Errorf("the shorter one: %+v", done)
			}
			select {
			case done := <-first:
				if done.failed != nil || done.fact.State != messages.ContainerExited {
					t.Errorf("the longer one: %+v", done)
				}
			case <-time.After(5 * time.Minute):
				t.Error("whoever asked first still waits")
			}
			if c := runtime.Snapshot().Containers[0]; c.Running() {
				t.Error("it runs")
			}
		})
	}
}

// A stop joins a stop in progress only if that ends in time.
func TestWhichStopIsJoined(t *testing.T) {
	ops, release := cri.NewOperations(), make(chan struct{})
	now := time.Unix(1000, 0)
	m := messages.StopContainer{UID: "u", Fact: messages.ContainerFact{ID: "c"}, Grace: 30 * time.Second}
	first, hurried := stopKey(ops, m, now)
	if hurried || !strings.HasPrefix(first, "u/stop/c/") {
		t.Fatalf("%s, %v", first, hurried)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = ops.Do(t.Context(), first, time.Minute, func(context.Context) (any, error) {
			close(begun)
			<-release
			return nil,
				nil
		})
	}()
	<-begun
	for _, c := range []struct {
		grace, later time.Duration
		joined       bool
	}{
		{30 * time.Second, 0, true},
		{30 * time.Second, time.Minute, true},
		{20 * time.Second, 10 * time.Second, true},
		{29500 * time.Millisecond, 0, true},
		{20 * time.Second, 0, false},
	} {
		m.Grace = c.grace
		key, hurried := stopKey(ops, m, now.Add(c.later))
		if (key == first) != c.joined || hurried == c.joined {
			t.Errorf("%s asked for %s later: %s, hurried %v", c.grace, c.later, key, hurried)
		}
	}
	close(release)
	<-ended
}

// The actor, too, begins another stop only if that has less time.
func TestStop_RepeatedWithLessTime(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{})
	k := supervisortest.New(t, messages.ContainerAddress("u", "c"), New(h)("c"))
	m := messages.StopContainer{UID: "u", Name: "c", Fact: messages.ContainerFact{ID: "id", Name: "c",
		State: messages.ContainerRunning}, Pod: podOf(v1.Container{Name: "c"})}
	works := 0
	for i, c := range []struct {
		grace time.Duration
		more  int
	}{{30, 1}, {30, 0}, {60, 0}, {5, 1}, {30, 0}, {1, 1}} {
		m.Grace = c.grace * time.Second
		k.Send(messages.PodAddress("u"), m)
		if got := len(k.Work) - works; got != c.more {
			t.Errorf("step %d: %d stops are begun, want %d", i, got, c.more)
		}
		works = len(k.Work)
	}
}

// A runtime may answer StopContainer before the container's status changes.
func TestTheStatusOfAStoppedContainerComesLater(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	m := hooked(t, h, nil)
	runtime.Inject(sim.Fault{Call: "ContainerStatus", Kind: sim.Wrong, Times: 3})
	if done := stop(t.Context(), h, m); done.failed != nil || done.fact.State != messages.ContainerExited {
		t.Errorf("got %+v", done)
	}
}

// A clock that is set during a stop begins no second one, which would cut off the pre-stop hook.
func TestStopKey_ClockSet(t *testing.T) {
	m := messages.StopContainer{UID: "u", Fact: messages.ContainerFact{ID: "c"}, Grace: 30 * time.Second}
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		ops, release, now := cri.NewOperations(), make(chan struct{}), time.Now()
		first, _ := stopKey(ops, m, now)
		begun, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = ops.Do(t.Context(), first, time.Minute, func(context.Context) (any, error) {
				close(begun)
				<-release
				return nil, nil //nolint:nilnil // it has no result
			})
		}()
		<-begun
		if key, hurried := stopKey(ops, m, supervisortest.SetClock(now.Add(time.Second), jump)); key != first || hurried {
			t.Errorf("clock set by %s: got the key %s, hurried %t, want %s", jump, key, hurried, first)
		}
		shorter := m
		shorter.Grace = 10 * time.Second
		if key, hurried := stopKey(ops, shorter, supervisortest.SetClock(now.Add(time.Second), jump)); key == first || !hurried {
			t.Errorf("clock set by %s: a shorter stop joins the longer one", jump)
		}
		close(release)
		<-ended
	}
}
