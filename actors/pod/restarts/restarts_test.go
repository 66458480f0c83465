package restarts

import (
	"testing"
	"time"
)

// Whatever the runtime's time of the end, the wait is at most the back-off; the first restart is immediate.
func TestAClockSetBackLengthensNoWait(t *testing.T) {
	p := BackOff{Base: 10 * time.Second, Max: 300 * time.Second}
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		step  int
		ended time.Duration // from now
		want  time.Duration
	}{
		{0, 0, 0},
		{0, time.Hour, 0},
		{1, 0, 10 * time.Second},
		{1, -4 * time.Second, 6 * time.Second},
		{1, time.Minute, 10 * time.Second},
		{3, time.Minute, 40 * time.Second},
		{2, time.Hour, 0}, // as after a long run
	} {
		b := Place{Step: c.step, Last: now.Add(-time.Minute)}
		if got := p.After(now, b, now.Add(c.ended)).Sub(now); got != c.want {
			t.Errorf("step %d, ended %s from now: waits %s, want %s", c.step, c.ended, got, c.want)
		}
	}
}
