package supervisors

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// result is the exit code of a test actor, which ends now.
type result int

func (r result) Exit() messages.Exit { return messages.Exit{Code: int32(r), At: time.Now()} }

// leave has an actor end itself.
type leave struct {
	result result
	falls  bool // it panics as well
}

// raise has the keeper spawn a child with a strategy.
type raise struct{ s exits.Strategy }

// change has the keeper replace the strategy of the child.
type change struct{ s exits.Strategy }

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
		ctx.SpawnWith("c", m.s)
		return true
	case change:
		ctx.SetStrategy("c", m.s)
		return true
	}
	return false
}

func exited(result result, verdict messages.ExitVerdict) func(any) bool {
	return func(v any) bool {
		n, ok := v.(named)
		e, isExit := n.msg.(messages.ChildExited)
		return ok && isExit && n.actor == "keeper" && e.Result == result && e.Verdict == verdict &&
			(verdict == messages.ExitRestarts) != e.RestartAt.IsZero()
	}
}

// A permanent child is restarted however often it ends: exits are not panics, and count towards no intensity.
func TestExitsCountTowardsNoIntensity(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 0), in, nil, exiting)
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	s.Tell("keeper", raise{exits.Strategy{Restart: exits.Permanent}})
	for i := 1; i <= 10; i++ {
		in.await(t, i, "starts of c", is[messages.Started]("keeper/c"))
		s.Tell("keeper/c", leave{result: result(i)})
		in.await(t, 1, fmt.Sprintf("exits with %d", i), exited(result(i), messages.ExitRestarts))
	}
	in.await(t, 10, "words to the keeper that c started again", func(v any) bool {
		n, ok := v.(named)
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

// The restart comes when the back-off of the strategy is over, and not before.
func TestARestartAfterAnExitWaits(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 0), in, nil, exiting)
	in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
	const wait = 50 * time.Millisecond
	s.Tell("keeper", raise{exits.Strategy{Restart: exits.Permanent, Backoff: backoff.Restarts{
		Policy: backoff.Policy{First: wait, Max: time.Hour}, Step: 1, Last: time.Now(),
	}}})
	in.await(t, 1, "starts of c", is[messages.Started]("keeper/c"))
	began := time.Now()
	s.Tell("keeper/c", leave{result: 1})
	in.await(t, 2, "starts of c", is[messages.Started]("keeper/c"))
	if took := time.Since(began); took < wait {
		t.Errorf("it was restarted after %s", took)
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
		s.Tell("keeper", raise{exits.Strategy{Restart: exits.Temporary, Escalate: true}})
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
	s.Tell("keeper", raise{exits.Strategy{Restart: exits.Temporary}})
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
		func(s exits.Strategy) any { return raise{s} }, func(s exits.Strategy) any { return change{s} },
	} {
		in := newInbox()
		s := startFamily(t, family(Escalate, 5), in, nil, exiting)
		in.await(t, 1, "starts of the keeper", is[messages.Started]("keeper"))
		s.Tell("keeper", change{exits.Strategy{Restart: exits.Permanent}})
		ask(t, s, "keeper")
		if got := s.Actors(); slices.Contains(got, "keeper/c") {
			t.Errorf("the strategy of an absent child spawned it: %v", got)
		}
		s.Tell("keeper", raise{exits.Strategy{Restart: exits.Temporary}})
		in.await(t, 1, "starts of c", is[messages.Started]("keeper/c"))
		s.Tell("keeper", replace(exits.Strategy{Restart: exits.Permanent}))
		ask(t, s, "keeper")
		s.Tell("keeper/c", leave{result: 1})
		in.await(t, 1, "exits", exited(1, messages.ExitRestarts))
		in.await(t, 2, "starts of c", is[messages.Started]("keeper/c"))
	}
}
