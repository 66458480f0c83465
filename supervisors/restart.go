package supervisors

import (
	"math/rand/v2"
	"time"
)

// The back-off after panics: at once, then from panicBase doubling to panicCap, jittered so that siblings that fell
// together do not rise together.
const (
	panicBase = 100 * time.Millisecond
	panicCap  = 10 * time.Second
)

// verdict is what the restart mechanism does with a child that panicked.
type verdict struct {
	outcome Outcome // empty: restart
	after   time.Duration
}

// record is a child's history of panics. Its zero value is a clean one.
type record struct {
	panics    []time.Time
	probation bool // came out of quarantine: a panic within the strategy's time of that sends it back
}

// judge counts a panic at now and says what follows. It is pure but for the jitter, which the caller provides.
func (r *record) judge(s Strategy, now time.Time, jitter func() float64) verdict {
	kept := r.panics[:0]
	for _, t := range r.panics {
		if now.Sub(t) < s.Within {
			kept = append(kept, t)
		}
	}
	r.probation = r.probation && len(kept) > 0 // which release itself is among, for as long as the strategy's time
	r.panics = append(kept, now)
	if len(r.panics) <= s.Panics && !r.probation {
		return verdict{after: panicDelay(len(r.panics), jitter)}
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

func panicDelay(n int, jitter func() float64) time.Duration {
	if n <= 1 {
		return 0
	}
	d := panicCap
	if shift := n - 2; shift < 7 {
		d = min(panicBase<<shift, panicCap)
	}
	return d/2 + time.Duration(jitter()*float64(d/2))
}

func randomJitter() float64 { return rand.Float64() } //nolint:gosec // spreads restarts; nothing to guess
