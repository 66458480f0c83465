package stats

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// longWalks limits the concurrent walks that have taken longer than walkTimeout. They take turns of turnTime.
	longWalks = 8
	turnTime  = 2 * time.Second
	// hangAge is the age of a walk's last batch after which it loses its place: its file server does not answer.
	hangAge = 10 * time.Second
)

// turnQueue gives a few places in turn to long walks, fairly by namespace. Safe for concurrent use.
type turnQueue struct {
	places int
	now    func() time.Time

	mu      sync.Mutex
	held    map[*podWalk]*turn
	waiting []*turn // the one that has waited longest first
}

// turn is a walk's request for a place, or its place.
type turn struct {
	walk        *podWalk
	began, seen time.Time
	granted     chan struct{} // closed when the walk has the place
}

func newTurns(places int, now func() time.Time) *turnQueue {
	return &turnQueue{places: places, now: now, held: map[*podWalk]*turn{}}
}

// pass blocks while it is the turn of other walks, or until ctx ends. A walk calls it after each batch.
func (t *turnQueue) pass(ctx context.Context, w *podWalk) {
	t.mu.Lock()
	if mine := t.held[w]; mine != nil {
		mine.seen = t.now()
		if len(t.waiting) == 0 || mine.seen.Sub(mine.began) < turnTime {
			t.mu.Unlock()
			return
		}
		delete(t.held, w)
	}
	mine := &turn{walk: w, granted: make(chan struct{})}
	t.waiting = append(t.waiting, mine)
	t.grant()
	t.mu.Unlock()
	again := time.NewTicker(turnTime)
	defer again.Stop()
	for {
		select {
		case <-mine.granted:
			return
		case <-ctx.Done():
			t.leave(w)
			return
		case <-again.C: // a walk that hangs does not give its place
			t.mu.Lock()
			t.grant()
			t.mu.Unlock()
		}
	}
}

// leave gives up the walk's place, or its request for one.
func (t *turnQueue) leave(w *podWalk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.held, w)
	t.waiting = slices.DeleteFunc(t.waiting, func(one *turn) bool { return one.walk == w })
	t.grant()
}

// grant gives free places to the walks of the namespaces with the fewest places. t.mu is held.
func (t *turnQueue) grant() {
	now, places := t.now(), map[string]int{}
	for w, one := range t.held {
		if now.Sub(one.seen) >= hangAge {
			delete(t.held, w)
		} else {
			places[w.namespace]++
		}
	}
	for len(t.waiting) > 0 && len(t.held) < t.places {
		i := fewest(len(t.waiting), func(i int) int { return places[t.waiting[i].walk.namespace] })
		one := t.waiting[i]
		t.waiting = slices.Delete(t.waiting, i, i+1)
		one.began, one.seen = now, now
		t.held[one.walk] = one
		places[one.walk.namespace]++
		close(one.granted)
	}
}

// fewest returns the first of n indexes with the lowest count.
func fewest(n int, count func(int) int) (best int) {
	for i := 1; i < n; i++ {
		if count(i) < count(best) {
			best = i
		}
	}
	return best
}
