package supervisors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// result is the exit code of a test actor, which ends now.
type result int

func (r result) Exit() messages.Exit { return messages.Exit{Code: int32(r)} }

// leave has an actor end itself.
type leave struct {
	result result
	falls  bool // it panics as well
}

// raise has the keeper spawn a child with a strategy and a desired state.
type raise struct {
	s       exits.Strategy
	desired any
}

// change has the keeper replace both of the child.
type change raise

func exiting(ctx Context, msg any) bool {
	switch m := msg.(type) {
	case leave:
		ctx.Exit(m.result)
		ctx.Exit(m.result + 1000) // the first counts
		if m.falls {
			panic("it fell while it ended")
		}
		return true
	case raise:
		ctx.SpawnWith("c", m.desired, m.s)
		return true
	case change:
		ctx.Update("c", m.desired, m.s)
		return true
	}
	return false
}

func exited(result result, verdict messages.ExitVerdict) func(any) bool {
	return func(v any) bool {
		n, ok := v.(addressedMessage)
		e, isExit := n.msg.(messages.ChildExited)
		return ok && isExit && n.actor == "keeper" && e.Result == result && e.Verdict == verdict
	}
}

// A permanent child is restarted however often it ends: exits are not panics, and count towards no intensity.
func TestExitsCountTowardsNoIntensity(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 0), in, nil, exiting)
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	for i := 1; i <= 10; i++ {
		s.Tell("keeper", raise{s: exits.Strategy{Restart: exits.Permanent}, desired: work(i)})
		in.await(t, i, "starts of c", is[messages.Started]("keeper/c"))
		s.Tell("keeper/c", leave{result: result(i)})
		in.await(t, 1, fmt.Sprintf("exits with %d", i), exited(result(i), messages.ExitRestarts))
	}
	in.await(t, 9, "words to the keeper that c started again", func(v any) bool {
		n, ok := v.(addressedMessage)
		c, isStart := n.msg.(messages.ChildStarted)
		return ok && isStart && n.actor == "keeper" && c.Name == "c" && c.Again
	})
	if q := s.Quarantined(); len(q) > 0 || s.Counters.Panics.Load() > 0 {
		t.Errorf("in quarantine %v, panics %d", q, s.Counters.Panics.Load())
	}
	if n := in.count(is[messages.ChildStopped]("keeper")); n > 0 {
		t.Errorf("%d words that it was stopped", n)
	}
}

// A child that ended for good frees its name and leaves no state.
func TestAnExitWithoutRestartLeavesTheNameFree(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 0), in, nil, exiting)
	for _, sibling := range []messages.Address{"keeper/a", "keeper/b"} { // they are counted below
		in.await(t, 1, "starts", is[messages.Started](sibling))
	}
	for i, verdict := range []messages.ExitVerdict{messages.ExitStops, messages.ExitEscalates} {
		s.Tell("keeper", raise{s: exits.Strategy{Restart: exits.Temporary, Escalate: true}})
		in.await(t, i+1, "starts of c", is[messages.Started]("keeper/c"))
		s.Tell("keeper/c", leave{result: result(i)})
		in.await(t, 1, "exits", exited(result(i), verdict))
	}
	if got := ask(t, s, "keeper"); got != "pong from keeper" { // the parent gets the verdict and does not panic
		t.Errorf("the keeper answered %v", got)
	}
	if got := s.Actors(); len(got) != 5 {
		t.Errorf("there are %v", got)
	}
}

// An actor that falls while it ends has fallen: it is restarted, and finds out again that it is over.
func TestAPanicGoesBeforeAnExit(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 5), in, nil, exiting)
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	s.Tell("keeper", raise{s: exits.Strategy{Restart: exits.Temporary}})
	in.await(t, 1, "starts of c", is[messages.Started]("keeper/c"))
	s.Tell("keeper/c", leave{result: 1, falls: true})
	in.await(t, 2, "starts of c", is[messages.Started]("keeper/c"))
	s.Tell("keeper/c", leave{result: 2})
	in.await(t, 1, "exits", exited(2, messages.ExitStops))
	if n := in.count(exited(1, messages.ExitStops)); n > 0 {
		t.Error("an exit was told of an actor that fell")
	}
}

// A new strategy for an existing child replaces the one before, and spawns no child.
func TestExitStrategy_IsReplaced(t *testing.T) {
	for _, replace := range []func(exits.Strategy) any{
		func(s exits.Strategy) any { return raise{s: s} }, func(s exits.Strategy) any { return change{s: s} },
	} {
		in := newInbox()
		s := startFamily(t, family(Escalate, 5), in, nil, exiting)
		in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
		s.Tell("keeper", change{s: exits.Strategy{Restart: exits.Permanent}})
		ask(t, s, "keeper")
		if got := s.Actors(); slices.Contains(got, "keeper/c") {
			t.Errorf("the strategy of an absent child spawned it: %v", got)
		}
		s.Tell("keeper", raise{s: exits.Strategy{Restart: exits.Temporary}})
		in.await(t, 1, "starts of c", is[messages.Started]("keeper/c"))
		s.Tell("keeper", replace(exits.Strategy{Restart: exits.Permanent}))
		ask(t, s, "keeper")
		s.Tell("keeper/c", leave{result: 1})
		in.await(t, 1, "exits", exited(1, messages.ExitRestarts))
		if n := in.count(is[messages.Started]("keeper/c")); n != 1 {
			t.Errorf("got %d starts of a child without a desired state, want 1", n)
		}
	}
}

// work is a desired state of the child.
type work int

func startedWith(desired any) func(any) bool {
	return func(v any) bool {
		n, ok := v.(addressedMessage)
		started, isStart := n.msg.(messages.Started)
		return ok && isStart && n.actor == "keeper/c" && started.Desired == desired
	}
}

func gets(desired work) func(any) bool {
	return func(v any) bool { return v == any(addressedMessage{"keeper/c", desired}) }
}

// The desired state of a child outlives its incarnations: after a panic the child has it again. An exit ends it, and the child
// waits for the next one. If that is there and belongs to a later run, the child is restarted, whatever the verdict on the exit.
func TestSpawnWith_DesiredStateOutlivesTheChild(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Escalate, 100), in, nil, exiting)
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	strategy := exits.Strategy{Restart: exits.Permanent}
	s.Tell("keeper", raise{strategy, work(1)})
	in.await(t, 1, "starts with 1", startedWith(work(1)))
	if v, ok := s.VitalsOf("keeper/c"); !ok || v.Desired != "work" {
		t.Errorf("got the vitals %+v of a child, want its desired state", v)
	}
	s.Tell("keeper", raise{strategy, work(2)})
	in.await(t, 1, "messages with 2", gets(2))
	s.Tell("keeper/c", boom{})
	in.await(t, 1, "starts with 2", startedWith(work(2)))
	s.Tell("keeper", change{strategy, work(3)})
	ask(t, s, "keeper")
	s.Tell("keeper/c", boom{})
	in.await(t, 1, "starts with 3", startedWith(work(3)))
	if n := in.count(gets(3)); n > 0 {
		t.Errorf("an update was sent to the child as %d messages, want none", n)
	}
	s.Tell("keeper/c", leave{result: 1})
	in.await(t, 1, "exits", exited(1, messages.ExitRestarts))
	if v, ok := s.VitalsOf("keeper/c"); !ok || v.State != Exited || v.Desired != "" {
		t.Errorf("got the vitals %+v of a child without a desired state, want %s", v, Exited)
	}
	s.Tell("keeper", raise{strategy, work(4)})
	in.await(t, 1, "starts with 4", startedWith(work(4)))
	if n := in.count(startedWith(nil)); n > 0 {
		t.Errorf("the child was started %d times without a desired state, want 0", n)
	}
	for i, restart := range []exits.RestartType{exits.Permanent, exits.Temporary} {
		s.Tell("keeper", change{exits.Strategy{Restart: restart, Run: 1}, work(5 + i)})
		ask(t, s, "keeper")
		s.Tell("keeper/c", leave{result: 2})
		in.await(t, 1, "starts with a later run", startedWith(work(5+i)))
	}
}

// A child is restarted once its parent has handled the messages that came before its end: one of them may replace the desired
// state. The first message to the child belongs to the flow of the parent's order.
func TestSpawnWith_ARestartFollowsEarlierMessages(t *testing.T) {
	type swap struct{ until chan struct{} }
	strategy, in := exits.Strategy{Restart: exits.Permanent}, newInbox()
	s := startFamily(t, family(Escalate, 100), in, nil, func(ctx Context, msg any) bool {
		switch m := msg.(type) {
		case swap:
			ctx.Stop("c")
			ctx.SpawnWith("c", work(1), strategy)
			<-m.until
		case raise:
			in.put(ctx.(*cell).env.flow.ID)
		case messages.Started:
			if m.Desired == work(0) {
				in.put(ctx.(*cell).env.flow.ID)
			}
		}
		return exiting(ctx, msg)
	})
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	s.Tell("keeper", raise{strategy, work(0)})
	in.await(t, 1, "starts with 0", startedWith(work(0)))
	ended := make(chan struct{})
	s.Tell("keeper", swap{ended})
	s.Tell("keeper", change{strategy, work(2)})
	in.await(t, 1, "swaps", is[swap]("keeper"))
	for l, _ := s.lives.Load(messages.Address("keeper/c")); l.(*life).runs(); {
		time.Sleep(time.Millisecond)
	}
	close(ended)
	in.await(t, 2, "starts of c", is[messages.Started]("keeper/c"))
	if n := in.count(startedWith(work(2))); n != 1 {
		t.Errorf("got %d starts with the newest desired state, want 1", n)
	}
	flows := map[uint64]int{}
	in.count(func(v any) bool {
		if id, ok := v.(uint64); ok {
			flows[id]++
		}
		return false
	})
	if len(flows) != 1 {
		t.Errorf("got the flows %v of the order and the start, want one", flows)
	}
}

// A child that is being stopped is started again with the desired state that its parent gives it meanwhile. The earlier one is
// dropped.
func TestSpawnWith_RevivesAStoppedChild(t *testing.T) {
	type swap struct{ desired any }
	in := newInbox()
	strategy := exits.Strategy{Restart: exits.Permanent}
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		if m, ok := msg.(swap); ok {
			ctx.Stop("c")
			if m.desired != nil {
				ctx.SpawnWith("c", m.desired, strategy)
			}
			return true
		}
		return exiting(ctx, msg)
	})
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	s.Tell("keeper", raise{strategy, work(1)})
	in.await(t, 1, "starts with 1", startedWith(work(1)))
	s.Tell("keeper", swap{work(2)})
	in.await(t, 1, "starts with 2", startedWith(work(2)))
	s.Tell("keeper", swap{})
	in.await(t, 1, "stops", is[messages.ChildStopped]("keeper"))
	s.Tell("keeper", raise{strategy, work(3)})
	in.await(t, 1, "starts with 3", startedWith(work(3)))
	if n := in.count(is[messages.Started]("keeper/c")); n != 3 {
		t.Errorf("got %d starts, want 3", n)
	}
}

// A quarantined child keeps its desired state, takes a newer one without a start, and is released with it.
func TestSpawnWith_WaitsForEndOfQuarantine(t *testing.T) {
	type release struct{}
	in := newInbox()
	strategy := exits.Strategy{Restart: exits.Permanent}
	s := startFamily(t, family(Quarantine, 0), in, nil, func(ctx Context, msg any) bool {
		if _, ok := msg.(release); ok {
			ctx.Tell(ctx.Self(), respawn{"c", ctx.(*cell).children["c"].respawn})
			return true
		}
		return exiting(ctx, msg)
	})
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	for i := range 2 {
		s.Tell("keeper", raise{strategy, work(2 * i)})
		if i == 0 {
			in.await(t, 1, "starts with 0", startedWith(work(0)))
		} else {
			in.await(t, 1, "messages with 2", gets(2))
		}
		s.Tell("keeper/c", boom{})
		in.await(t, i+1, "quarantines", is[messages.ChildQuarantined]("keeper"))
		if i > 0 {
			s.Tell("keeper", raise{strategy, work(3)})
			ask(t, s, "keeper")
		}
		s.Tell("keeper", release{})
		in.await(t, i+2, "starts of c", is[messages.Started]("keeper/c"))
	}
	for desired, want := range map[work]int{0: 2, 2: 0, 3: 1} {
		if n := in.count(startedWith(desired)); n != want {
			t.Errorf("got %d starts with %d, want %d", n, desired, want)
		}
	}
}

// A desired state that is repeated between an exit and the parent's handling of it starts no actor. One of a later run does.
func TestSpawnWith_RepeatedAfterAnExit(t *testing.T) {
	type repeat struct {
		desired work
		s       exits.Strategy
	}
	for _, restart := range []exits.RestartType{exits.Permanent, exits.Temporary} {
		in := newInbox()
		s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
			m, ok := msg.(repeat)
			if !ok {
				return exiting(ctx, msg)
			}
			c := ctx.(*cell)
			if l, ok := c.sys.lives.Load(messages.Address("keeper/c")); ok {
				for l.(*life).runs() {
					time.Sleep(time.Millisecond)
				}
			}
			env := c.env
			c.childTerminated("c") // as protoactor does; its own call comes too late here
			c.env = env
			ctx.SpawnWith("c", m.desired, m.s)
			return true
		})
		in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
		for i, run := range []uint32{0, 1} {
			s.Tell("keeper", raise{exits.Strategy{Restart: restart}, work(10 * i)})
			in.await(t, 1, "starts", startedWith(work(10*i)))
			s.Tell("keeper/c", leave{result: result(i)})
			s.Tell("keeper", repeat{work(10*i + 1), exits.Strategy{Restart: restart, Run: run}})
			in.await(t, i+1, "exits", is[messages.ChildExited]("keeper"))
			ask(t, s, "keeper")
			if n := in.count(startedWith(work(1))); n != 0 {
				t.Fatalf("%s: got %d starts for a repeated desired state, want 0", restart, n)
			}
		}
		in.await(t, 1, "starts of the later run", startedWith(work(11)))
	}
}
