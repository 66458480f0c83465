package containers

import (
	"testing"
	"time"
)

// A clock that was set back after the start of a container does not make a reader of its empty log wait for hours.
func TestOutputWait(t *testing.T) {
	now := time.Unix(1e9, 0)
	for started, want := range map[time.Duration]time.Duration{
		0: firstOutput, -firstOutput / 4: firstOutput * 3 / 4, -time.Hour: firstOutput - time.Hour, time.Hour: firstOutput,
	} {
		if got := outputWait(now.Add(started), now); got != want {
			t.Errorf("started %s after now: waits %s, want %s", started, got, want)
		}
	}
}
