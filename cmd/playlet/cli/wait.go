package cli

import (
	"context"
	"time"
)

// ReconnectEvery is how often an agent that is gone is looked for.
const ReconnectEvery = time.Second

// progressEvery is how often it is said again what goes on for long: a pull, or the wait for one.
const progressEvery = 10 * time.Second

// Pause waits, and says whether ctx lasted.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Repeat says again and again, every ten seconds or at each tick, what goes on, until ctx ends. Without ticks it takes a clock's.
func Repeat(ctx context.Context, ticks <-chan time.Time, say func()) {
	if ticks == nil {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			say()
		case <-ctx.Done():
			return
		}
	}
}
