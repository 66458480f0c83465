package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// hookPlaces is how many hooks run at a time, besides one of each pod.
const hookPlaces = 256

// Places bounds how many hooks of containers run at a time. Each pod always has one; of the others one pod has no more than an
// eighth once half of them are taken, so that a few pods whose hooks hang keep nobody waiting. Those that wait enter in the order
// in which they came. The zero value is ready for use. Safe for concurrent use.
type Places struct {
	mu      sync.Mutex
	taken   int
	pods    map[string]int // how many each has
	waiting []waiting
}

type waiting struct {
	pod     string
	entered chan struct{} // closed with that
}

// Enter waits for a place for a pod's hook, until ctx ends. The place is taken until leave is called, once.
func (p *Places) Enter(ctx context.Context, pod string) (leave func(), err error) {
	w := waiting{pod, make(chan struct{})}
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
	p.waiting = slices.DeleteFunc(p.waiting, func(other waiting) bool { return other == w })
	entered := len(p.waiting) == before
	p.mu.Unlock()
	if entered {
		leave()
	}
	return nil, fmt.Errorf("waiting for other hooks to end: %w", ctx.Err())
}

// admit lets those in who may enter.
func (p *Places) admit() {
	p.waiting = slices.DeleteFunc(p.waiting, func(w waiting) bool {
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
