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

// RestartType selects the exits after which a child is restarted, in the actor model's terms.
type RestartType string

// The restart types.
const (
	Permanent RestartType = "permanent" // restarted after every exit
	Transient RestartType = "transient" // restarted after an exit that failed
	Temporary RestartType = "temporary" // never restarted
)

// ExitStrategy decides about a child that ends itself; its row of the tree decides about panics. The functions are pure and
// may be called at any message of the parent, on the parent's mailbox.
type ExitStrategy struct {
	Restart RestartType
	// Failed reports whether a transient child restarts after an exit with this result; nil means never.
	Failed func(result any) bool
	// Delay is the back-off before a restart; nil: at once.
	Delay func(now time.Time, result any) time.Duration
	// Escalate reports whether an exit without restart is also the parent's failure; nil means never. The parent acts on the
	// verdict in ChildExited; it does not panic.
	Escalate func(result any) bool
}

// Judge returns the verdict on an exit, and the delay of a restart. It is pure.
func (s ExitStrategy) Judge(now time.Time, result any) (messages.ExitVerdict, time.Duration) {
	switch {
	case s.Restart == Permanent, s.Restart == Transient && s.Failed != nil && s.Failed(result):
		if s.Delay == nil {
			return messages.ExitRestarts, 0
		}
		return messages.ExitRestarts, max(s.Delay(now, result), 0)
	case s.Escalate != nil && s.Escalate(result):
		return messages.ExitEscalates, 0
	default:
		return messages.ExitStops, 0
	}
}

// exit is how an actor ended itself.
type exit struct {
	result any
	env    *envelope // that it handled then
}

// Exit implements Context. The first result counts.
func (c *cell) Exit(result any) {
	if c.exit == nil {
		c.exit = &exit{result: result, env: c.env}
	}
}

// childExited applies the exit strategy to a child that ended itself.
func (c *cell) childExited(name string, ch *child) {
	e := ch.c.exit
	c.env = &envelope{id: e.env.id, flow: e.env.flow} // the parent's part of the story
	defer func() { c.env = nil }()
	now := c.Now()
	verdict, after := ch.exits.Judge(now, e.result)
	exited := messages.ChildExited{Name: name, Result: e.result, Verdict: verdict}
	if verdict == messages.ExitRestarts {
		exited.RestartAt = now.Add(after)
	}
	c.Tell(c.self, exited)
	if verdict != messages.ExitRestarts {
		c.forget(name, ch)
		return
	}
	ch.onExit, ch.after = restartChild, after
	c.settle(name, ch)
}
