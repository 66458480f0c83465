package sim

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// ManualClock only moves by Advance. It is safe for concurrent use.
type ManualClock struct {
	advancing sync.Mutex // one Advance at a time; never held together with mu by callbacks

	mu     sync.Mutex
	now    time.Time
	seq    uint64
	timers timerHeap
	armed  signal
}

// NewManualClock returns a clock that shows start.
func NewManualClock(start time.Time) *ManualClock { return &ManualClock{now: start} }

// Now returns the time the clock was last advanced to; inside a callback, the due time of the callback.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc arms f for now + d. It runs inside the Advance that reaches that time; with d <= 0 inside the next one,
// even Advance(0).
func (c *ManualClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	t := &manualTimer{at: c.now.Add(max(d, 0)), seq: c.seq, f: f}
	heap.Push(&c.timers, t)
	c.armed.fire()
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.index < 0 {
			return false
		}
		heap.Remove(&c.timers, t.index)
		return true
	}
}

// Advance moves the clock forward by d and runs due functions, in the order of due time, then of arming, on the caller's
// goroutine. It also runs functions armed by those, if they become due within d. A callback must not call Advance.
func (c *ManualClock) Advance(d time.Duration) {
	c.advancing.Lock()
	defer c.advancing.Unlock()
	target := c.Now().Add(d)
	for {
		f := c.popDue(target)
		if f == nil {
			return
		}
		f()
	}
}

// popDue removes the next function due by target and sets the clock to its time; if none is left, it sets the clock to target.
func (c *ManualClock) popDue(target time.Time) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.timers) == 0 || c.timers[0].at.After(target) {
		c.now = target
		return nil
	}
	t := heap.Pop(&c.timers).(*manualTimer)
	c.now = t.at
	return t.f
}

// Pending returns the number of functions armed and not yet run.
func (c *ManualClock) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// WaitPending returns once at least n functions are armed, or with ctx's error. It lets a test advance the clock only after the
// tested call has begun to wait on it.
func (c *ManualClock) WaitPending(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		enough, armed := len(c.timers) >= n, c.armed.wait()
		c.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-armed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type manualTimer struct {
	at    time.Time
	seq   uint64
	f     func()
	index int // index in the heap; -1 once removed
}

type timerHeap []*manualTimer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*manualTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
