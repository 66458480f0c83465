package supervisors

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// A restarted parent starts all its children: their quarantines end, in health as well.
func TestAQuarantineEndsWithItsParent(t *testing.T) {
	in := newInbox()
	s := startFamily(t, family(Quarantine, 1), in, nil, nil)
	for i := 1; i <= 2; i++ {
		in.await(t, i, "starts of a", is[messages.Started]("keeper/a"))
		s.Tell("keeper/a", boom{})
	}
	in.await(t, 1, "words of the quarantine", is[messages.ChildQuarantined]("keeper"))
	s.Tell("keeper", boom{})
	in.await(t, 3, "starts of a", is[messages.Started]("keeper/a"))
	if q := s.Quarantined(); len(q) > 0 {
		t.Errorf("keeper/a runs, and is said to be in quarantine: %v", q)
	}
}

// A child that is on its way into quarantine is left alone, whatever its parent asks for it.
func TestARestartDoesNotCutAQuarantineShort(t *testing.T) {
	in, release := newInbox(), make(chan struct{})
	type restart struct{}
	s := startFamily(t, family(Quarantine, 0), in, nil, func(ctx Context, msg any) bool {
		switch msg.(type) {
		case ping: // its worker keeps the child from ending at once
			ctx.Do(Work{Name: "slow", Timeout: time.Minute, Run: func(context.Context) any { <-release; return ping{} }})
		case restart:
			if ctx.(*cell).children["a"].v.State == Running { // the supervisor has not handled the panic yet
				ctx.Tell(ctx.Self(), restart{})
				return true
			}
			ctx.SpawnWith("a", ping{}, exits.Strategy{})
			close(release)
		}
		return false
	})
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	ask(t, s, "keeper/a")
	s.Tell("keeper/a", boom{})
	s.Tell("keeper", restart{})
	in.await(t, 1, "words of the quarantine", is[messages.ChildQuarantined]("keeper"))
	if n := in.count(is[messages.Started]("keeper/a")); n != 1 {
		t.Errorf("it started %d times", n)
	}
}
