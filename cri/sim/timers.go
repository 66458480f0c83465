package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
)

// timer is one function armed on the runtime's clock. It runs with r.mu held, and not at all once cancelled, so whoever
// holds the lock need not fear a late one.
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

// cancelLocked makes sure t never runs from here on; nil and finished timers are fine.
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

// sleep waits d on the runtime's clock. It returns ctx's end as a gRPC status error.
func (r *Runtime) sleep(ctx context.Context, d time.Duration) error {
	_, err := r.sleepUnless(ctx, d, nil)
	return err
}

// sleepUnless is sleep that ends early, with interrupted set, when the channel is closed.
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
