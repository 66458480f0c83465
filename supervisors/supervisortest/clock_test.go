package supervisortest

import (
	"testing"
	"time"
)

// A clock that is set changes the wall time alone; differences are those of the monotonic clock.
func TestSetClock(t *testing.T) {
	wall := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	at := Monotonic(wall)
	if !at.Round(0).Equal(wall) || at == at.Round(0) || at.Format(time.RFC3339Nano) != wall.Format(time.RFC3339Nano) {
		t.Errorf("got %v, want %v with a monotonic part", at, wall)
	}
	for _, by := range []time.Duration{-56 * 365 * 24 * time.Hour, -time.Hour, time.Nanosecond, 300 * 24 * time.Hour} {
		later := SetClock(at.Add(time.Second), by)
		if got := later.Sub(at); got != time.Second {
			t.Errorf("set by %s: %s passed, want 1s", by, got)
		}
		if got, want := later.Round(0), wall.Add(time.Second+by); !got.Equal(want) {
			t.Errorf("set by %s: it is %s, want %s", by, got, want)
		}
	}
}
