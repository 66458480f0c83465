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
