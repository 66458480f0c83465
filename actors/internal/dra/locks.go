package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// locks admit one preparation or end of a claim at a time. They are taken in the order of the names, so that no two callers wait
// for each other.
type locks struct {
	mu   sync.Mutex
	held map[key]chan struct{} // closed when it is free
}

// lock takes the locks of claims, until unlock is called. It returns an error when ctx ends first.
func (l *locks) lock(ctx context.Context, keys []key) (unlock func(), err error) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	keys = slices.Compact(keys)
	for i, k := range keys {
		if err := l.one(ctx, k); err != nil {
			l.unlock(keys[:i])
			return nil, err
		}
	}
	return func() { l.unlock(keys) }, nil
}

func (l *locks) one(ctx context.Context, k key) error {
	for {
		l.mu.Lock()
		free, busy := l.held[k]
		if !busy {
			if l.held == nil {
				l.held = map[key]chan struct{}{}
			}
			l.held[k] = make(chan struct{})
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return fmt.Errorf("ResourceClaim %s is being prepared or unprepared for another pod: %w", k, ctx.Err())
		}
	}
}

func (l *locks) unlock(keys []key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		close(l.held[k])
		delete(l.held, k)
	}
}
