package host

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

const (
	// slowAnswer is the time after which a runtime that has not answered counts as away.
	slowAnswer = 2 * time.Second
	// graceRetry is the pause between questions to a runtime that is away.
	graceRetry = time.Second
)

// Grace is a grace period that is paused while the runtime is away: hooks cannot run then, and signals are not delivered. Safe
// for concurrent use.
type Grace struct {
	host  *Host
	whole time.Duration

	mu      sync.Mutex
	began   time.Time
	until   time.Time
	away    time.Duration // total absence of the runtime that until includes
	resumed bool          // after an absence that was noticed at the end of the period
}

// NewGrace begins a grace period.
func (h *Host) NewGrace(whole time.Duration) *Grace {
	now := time.Now()
	_, away := h.absence()
	return &Grace{host: h, whole: whole, began: now, until: now.Add(whole), away: away}
}

// absence returns when the runtime last answered, and how long it has been away in all.
func (h *Host) absence() (answered time.Time, away time.Duration) {
	if h.Absence == nil {
		return time.Time{}, 0
	}
	return h.Absence()
}

// Rest returns the rest of the period, at least zero.
func (g *Grace) Rest() time.Duration {
	_, away := g.host.absence()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.extend(away-g.away, away)
	return max(time.Until(g.until), 0)
}

// extend adds an absence. A period never lasts longer than the whole from now on.
func (g *Grace) extend(by, away time.Duration) {
	if by <= 0 {
		return
	}
	g.away, g.until = away, g.until.Add(by)
	if whole := time.Now().Add(g.whole); whole.Before(g.until) {
		g.until = whole
	}
}

// ErrGraceOver is the cause of the end of a Context.
var ErrGraceOver = errors.New("the grace period is over")

// Context returns a context that ends with the period, as Wait does, with the cause ErrGraceOver.
func (g *Grace) Context(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if guard.Call(slog.Default(), "wait for a grace period", func() error { return g.Wait(ctx) }) == nil {
			cancel(ErrGraceOver)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Wait returns nil at the end of the period, or the error of ctx. At the end it asks the runtime. If the runtime is away, Wait
// waits for its return and continues the period; it does so once.
func (g *Grace) Wait(ctx context.Context) error {
	for {
		for rest := g.Rest(); rest > 0; rest = g.Rest() {
			if err := pause(ctx, rest); err != nil {
				return err
			}
		}
		resumed, err := g.resume(ctx)
		if err != nil || !resumed {
			return err
		}
	}
}

// resume reports whether the runtime was away at the end of the period and the period continues.
func (g *Grace) resume(ctx context.Context) (bool, error) {
	g.mu.Lock()
	resumed := g.resumed
	g.mu.Unlock()
	if resumed {
		return false, nil
	}
	answered, away := g.host.absence()
	asked, err := time.Now(), error(nil)
	for {
		if _, err = g.host.CRI.Version(cri.WithoutSlot(ctx)); err == nil {
			break
		}
		if err := pause(ctx, graceRetry); err != nil {
			return false, err
		}
	}
	if time.Since(asked) < slowAnswer {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if answered.Before(g.began) {
		answered = g.began
	}
	lost := time.Since(answered)
	g.resumed, g.until = true, time.Now()
	g.extend(min(lost, g.whole), max(away, g.away)+lost)
	return true, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
