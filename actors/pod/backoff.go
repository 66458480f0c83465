package pod

import "time"

// BackOff is the kubelet's back-off between a container's end and its next start: at once the first time, then Base
// doubling to Max, counted from the end, forgotten after twice Max without a restart.
type BackOff struct {
	Base, Max time.Duration
}

// backoff is one container's place in it.
type backoff struct {
	step int       // restarts so far, since it was last forgotten
	last time.Time // when the last one was
}

// wait is how long the container is held back after an end.
func (p BackOff) wait(step int) time.Duration {
	if step <= 0 {
		return 0
	}
	d := p.Base
	for range step - 1 {
		if d >= p.Max {
			break
		}
		d *= 2
	}
	return min(d, p.Max)
}

// after is when a container that ended at the given time may start again. A clock that was set back lengthens no wait.
func (p BackOff) after(now time.Time, b backoff, ended time.Time) time.Time {
	if b.step == 0 || p.expired(b, ended) {
		return now
	}
	wait := p.wait(b.step)
	return earliest(ended.Add(wait), now.Add(wait))
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// next is the back-off after a restart now of a container that ended at the given time.
func (p BackOff) next(b backoff, ended, now time.Time) backoff {
	if p.expired(b, ended) {
		return backoff{step: 1, last: now}
	}
	return backoff{step: b.step + 1, last: now}
}

func (p BackOff) expired(b backoff, ended time.Time) bool {
	return b.step > 0 && ended.Sub(b.last) > 2*p.Max
}
