package backoff

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAfter(t *testing.T) {
	p := Policy{First: 500 * time.Millisecond, Max: 3 * time.Second}
	for failures, want := range map[int]time.Duration{
		-1: p.First, 0: p.First, 1: p.First, 2: time.Second, 3: 2 * time.Second, 4: p.Max, math.MaxInt: p.Max,
	} {
		if got := p.After(failures, 0); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	p.Jitter = Half
	for random, want := range map[float64]time.Duration{0: 500 * time.Millisecond, 0.5: 750 * time.Millisecond} {
		if got := p.After(2, random); got != want {
			t.Errorf("random %v: %s, want %s", random, got, want)
		}
	}
}

// Each wait is within its bounds, and no shorter than the one before where nothing is random.
func TestAfterIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			First:  time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "first")),
			Max:    time.Duration(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "max")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n, random := rapid.IntRange(0, 200).Draw(t, "failures"), rapid.Float64Range(0, 0.999).Draw(t, "random")
		if got := p.After(n, random); got < 0 || got > p.Max {
			t.Fatalf("%s is not within 0 and %s", got, p.Max)
		}
		p.Jitter = 0
		if p.After(n+1, 0) < p.After(n, 0) {
			t.Fatal("it becomes shorter")
		}
	})
}

// Whatever the runtime's time of the end, the wait is at most the back-off; the first restart is immediate.
func TestAClockSetBackLengthensNoWait(t *testing.T) {
	p := Policy{First: 10 * time.Second, Max: 300 * time.Second}
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
		r := Restarts{Policy: p, Step: c.step, Last: now.Add(-time.Minute)}
		if got := r.At(now, now.Add(c.ended)).Sub(now); got != c.want {
			t.Errorf("step %d, ended %s from now: waits %s, want %s", c.step, c.ended, got, c.want)
		}
	}
}
