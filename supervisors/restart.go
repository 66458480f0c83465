package supervisors

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// panicRetry is the back-off after repeated panics. The first restart is immediate. Jitter spreads the restarts of siblings.
var panicRetry = backoff.Policy{First: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: backoff.Half}

// verdict is the decision about a child that panicked.
type verdict struct {
	outcome Outcome // empty: restart
	after   time.Duration
}

// record is a child's history of panics. Its zero value is a clean one.
type record struct {
	panics    []time.Time
	probation bool // came out of quarantine: a panic within the strategy's time of that sends it back
}

// judge counts a panic and returns the decision. It is pure but for the jitter, which the caller provides.
func (r *record) judge(s Strategy, now time.Time, jitter func() float64) verdict {
	kept := slices.DeleteFunc(r.panics, func(t time.Time) bool { return now.Sub(t) >= s.Within })
	r.probation = r.probation && len(kept) > 0 // which release itself is among, for as long as the strategy's time
	r.panics = append(kept, now)
	if len(r.panics) <= s.Panics && !r.probation {
		if len(r.panics) == 1 {
			return verdict{}
		}
		return verdict{after: panicRetry.After(len(r.panics)-1, jitter())}
	}
	if s.Then == Quarantine {
		return verdict{outcome: Quarantine, after: QuarantinePeriod}
	}
	return verdict{outcome: Escalate}
}

// release notes that the child is tried again after a quarantine.
func (r *record) release(now time.Time) {
	r.probation = true
	r.panics = append(r.panics[:0], now)
}

func randomJitter() float64 { return rand.Float64() } //nolint:gosec // spreads restarts; nothing to guess

// exit is how an actor ended itself.
type exit struct {
	result messages.ExitResult
	env    *envelope // that it handled then
}

// Exit implements Context. The first result counts.
func (c *cell) Exit(result messages.ExitResult) {
	if c.exit == nil {
		c.exit = &exit{result: result, env: c.env}
	}
}

// childExited applies the exit strategy to a child that ended itself. The exit ends the desired state of its run, and the child
// waits for the next one. A desired state of a later run stays: the child is restarted with it at once.
func (c *cell) childExited(name string, ch *child) {
	e := ch.c.exit
	c.env = &envelope{id: e.env.id, flow: e.env.flow} // the parent's part of the story
	defer func() { c.env = nil }()
	result := e.result.Exit()
	verdict := ch.exits.Verdict(result)
	c.Tell(c.self, messages.ChildExited{Name: name, Result: e.result, Verdict: verdict})
	c.unhandled[name] = result.Run
	switch {
	case ch.desired != nil && result.Run < ch.exits.Run:
		ch.onExit, ch.after = restartChild, 0
		c.settle(name, ch)
	case verdict != messages.ExitRestarts:
		c.forget(name, ch)
	default:
		ch.desire(nil)
		ch.enter(Exited, time.Time{})
	}
}

// handlesExit notes that the parent is about to handle the exit of a child: from then on, a desired state is a new one.
func (c *cell) handlesExit(m messages.ChildExited) {
	if run, ok := c.unhandled[m.Name]; ok && run == m.Result.Exit().Run {
		delete(c.unhandled, m.Name)
	}
}
