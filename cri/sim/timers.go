package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
)

// timer is one function armed on the runtime's clock. It runs with r.mu held, and not at all once cancelled, so a holder of the
// lock never sees a late call.
type timer struct {
	stop func() bool
	dead bool
}

// afterLocked arms f on the clock; r.mu is held here and again while f runs.
func (r *Runtime) afterLocked(d time.Duration, f func()) *timer {
	t := &timer{}
	r.timers[t] = struct{}{}
	r.wg.Add(1)
	t.stop = r.clock.AfterFunc(d, func() {
		defer r.wg.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.dead {
			return
		}
		t.dead = true
		delete(r.timers, t)
		f()
	})
	return t
}

// cancelLocked ensures that t never runs from here on. It accepts nil and finished timers.
func (r *Runtime) cancelLocked(t *timer) {
	if t == nil || t.dead {
		return
	}
	t.dead = true
	delete(r.timers, t)
	if t.stop() {
		r.wg.Done()
	}
}

// sleep waits d on the runtime's clock. It returns the end of ctx as a gRPC status error.
func (r *Runtime) sleep(ctx context.Context, d time.Duration) error {
	_, err := r.sleepUnless(ctx, d, nil)
	return err
}

// sleepUnless sleeps, but returns early, with interrupted set, when the channel is closed.
func (r *Runtime) sleepUnless(ctx context.Context, d time.Duration, interrupt <-chan struct{}) (interrupted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, status.FromContextError(err).Err()
	}
	if d <= 0 {
		return false, nil
	}
	done := make(chan struct{})
	r.mu.Lock()
	t := r.afterLocked(d, func() { close(done) })
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cancelLocked(t)
	}()
	select {
	case <-done:
		return false, nil
	case <-interrupt:
		return true, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

// Clock is the source of time and runs delayed functions. Everything in the runtime that takes time (life of a container,
// latency, grace period) goes through one Clock.
//
// AfterFunc runs f once, d after now, on a goroutine of the clock's choosing, never from inside AfterFunc. The returned function
// cancels it and reports whether f will now never run. Both may be called with locks held that f takes.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// RealClock is the machine's clock.
type RealClock struct{}

// Now implements Clock.
func (RealClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (RealClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// signal wakes all goroutines that wait for a change. Its owner's lock guards both methods.
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
