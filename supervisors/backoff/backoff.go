// Package backoff has the agent's one formula for the wait after failures.
package backoff

import "time"

// Policy is how long to wait after failures in a row: First, doubling to Max. Where Jitter is not zero, that share of
// each wait is random, so that many that failed together do not come back together. It is a value; its methods may be
// called by anyone.
type Policy struct {
	First, Max time.Duration
	Jitter     float64 // from 0 to 1
}

// Half is the jitter for requests to shared services, such as the API server.
const Half = 0.5

// After is the wait after so many failures in a row; less than one counts as one. Random, in [0,1), is used for the
// jitter alone.
func (p Policy) After(failures int, random float64) time.Duration {
	d := min(p.First, p.Max)
	for ; failures > 1 && d < p.Max; failures-- {
		d = min(2*d, p.Max)
	}
	return max(d-time.Duration(p.Jitter*float64(d)*(1-random)), 0)
}

// Restarts is the back-off between the end of a child and its restart, by the kubelet's rules for containers. The first restart
// is immediate. A later one waits as long as the policy demands, counted from the end of the child. A run that lasts longer
// than twice the policy's maximum resets the back-off. The zero value does not wait. It is a value, and safe for concurrent use.
type Restarts struct {
	Policy
	Step int       // restarts since the last reset
	Last time.Time // time of the last one
}

// Wait returns the wait after an end, without jitter.
func (r Restarts) Wait() time.Duration {
	if r.Step <= 0 {
		return 0
	}
	return r.Policy.After(r.Step, 0)
}

// At returns the time of the restart of a child that ended at the given time: now or later, but at most the wait from now, even
// if the end is of a clock that was set since.
func (r Restarts) At(now, ended time.Time) time.Time {
	if r.Step == 0 || r.expired(ended) {
		return now
	}
	if at := now.Add(min(ended.Sub(now), 0) + r.Wait()); at.After(now) {
		return at
	}
	return now
}

// Next returns the back-off after a restart now of a child that ended at the given time.
func (r Restarts) Next(ended, now time.Time) Restarts {
	if r.expired(ended) {
		r.Step = 0
	}
	r.Step++
	r.Last = now
	return r
}

func (r Restarts) expired(ended time.Time) bool { return r.Step > 0 && ended.Sub(r.Last) > 2*r.Max }
