package sim_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"pgregory.net/rapid"
)

// TestManualClock arms, cancels and advances over random timers: each runs once at its own time, in order, unless it was
// cancelled before.
func TestManualClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sim.NewManualClock(epoch)
		type timer struct {
			at           time.Time
			ran, stopped bool
			stop         func() bool
		}
		var timers []*timer
		var last time.Time
		arm := func(d time.Duration) {
			x := &timer{at: c.Now().Add(d)}
			x.stop = c.AfterFunc(d, func() {
				if x.ran || x.stopped {
					t.Fatal("ran twice, or after its cancellation")
				}
				if !c.Now().Equal(x.at) || c.Now().Before(last) {
					t.Fatalf("ran at %v, due %v, after one at %v", c.Now(), x.at, last)
				}
				x.ran, last = true, c.Now()
			})
			timers = append(timers, x)
		}
		t.Repeat(map[string]func(*rapid.T){
			"arm": func(t *rapid.T) { arm(time.Duration(rapid.IntRange(0, 50).Draw(t, "d"))) },
			"chain": func(t *rapid.T) {
				first, second := rapid.IntRange(0, 20).Draw(t, "first"), rapid.IntRange(0, 20).Draw(t, "second")
				c.AfterFunc(time.Duration(first), func() { arm(time.Duration(second)) })
			},
			"stop": func(t *rapid.T) {
				if len(timers) == 0 {
					t.Skip()
				}
				x := timers[rapid.IntRange(0, len(timers)-1).Draw(t, "which")]
				if got, want := x.stop(), !x.ran && !x.stopped; got != want {
					t.Fatalf("stop said %v, want %v", got, want)
				}
				x.stopped = true
			},
			"advance": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(0, 30).Draw(t, "d"))
				want := c.Now().Add(d)
				c.Advance(d)
				if !c.Now().Equal(want) {
					t.Fatalf("advanced to %v, want %v", c.Now(), want)
				}
				for _, x := range timers {
					if !x.at.After(want) && !x.ran && !x.stopped {
						t.Fatalf("a timer due %v has not run at %v", x.at, want)
					}
				}
			},
		})
	})
}

func TestRealClock(t *testing.T) {
	var c sim.RealClock
	if time.Since(c.Now()) > time.Hour {
		t.Error("the clock is wrong")
	}
	ran := make(chan struct{})
	c.AfterFunc(0, func() { close(ran) })
	<-ran
	var late atomic.Bool
	if !c.AfterFunc(time.Hour, func() { late.Store(true) })() || late.Load() {
		t.Error("could not be cancelled")
	}
}
