package images

import "time"

// bucket is a token bucket, kept as the time at which it is full again: one token comes every so often, and as many as fit
// into the slack, and one, may be taken at once. The zero bucket never runs out.
type bucket struct {
	every, slack time.Duration
	full         time.Time
}

// take takes a token, and returns zero, or when there will be one.
func (b *bucket) take(now time.Time) time.Time {
	if b.every == 0 {
		return time.Time{}
	}
	if at := b.full.Add(-b.slack); now.Before(at) {
		return at
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.every)
	return time.Time{}
}
