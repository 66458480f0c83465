package sim

import "time"

// Clock tells the time and runs functions later. Everything in the runtime that takes time (life of a container,
// latency, grace period) goes through one Clock.
//
// AfterFunc runs f once, d after now, on a goroutine of the clock's choosing, never from inside AfterFunc. The returned
// function cancels it and reports whether f will now never run. Both may be called while locks are held that f takes.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// RealClock is the machine's clock.
type RealClock struct{}

// Now is time.Now.
func (RealClock) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (RealClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// signal wakes everyone who waits for a change. Its owner's lock guards both methods.
type signal struct{ ch chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
