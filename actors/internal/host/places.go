package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// hookPlaces is how many hooks run at a time, besides one of each pod.
const hookPlaces = 256

// Places limits the number of concurrent hooks. Each pod always has one place. Once half of the others are taken, one pod may
// have an eighth of them, so that a few pods with hanging hooks do not block the rest. Waiters enter in order of arrival. The
// zero value is ready for use. Safe for concurrent use.
type Places struct {
	mu      sync.Mutex
	taken   int
	pods    map[string]int // how many each has
	waiting []waiter
}

type waiter struct {
	pod     string
	entered chan struct{} // closed with that
}

// Enter waits for a place for a pod's hook, until ctx ends. The place is taken until leave is called, once.
func (p *Places) Enter(ctx context.Context, pod string) (leave func(), err error) {
	w := waiter{pod, make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.admit()
	p.mu.Unlock()
	leave = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.pods[pod]--; p.pods[pod] == 0 {
			delete(p.pods, pod)
		}
		p.admit()
	}
	select {
	case <-w.entered:
		return leave, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	before := len(p.waiting)
	p.waiting = slices.DeleteFunc(p.waiting, func(other waiter) bool { return other == w })
	entered := len(p.waiting) == before
	p.mu.Unlock()
	if entered {
		leave()
	}
	return nil, fmt.Errorf("waiting for other hooks to end: %w", ctx.Err())
}

// admit starts the waiters that have a place.
func (p *Places) admit() {
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiter) bool {
		has := p.pods[w.pod]
		if has > 0 && p.taken >= hookPlaces/2 && (p.taken >= hookPlaces || has >= hookPlaces/8) {
			return false
		}
		if p.pods == nil {
			p.pods = map[string]int{}
		}
		p.taken++
		p.pods[w.pod]++
		close(w.entered)
		return true
	})
}
