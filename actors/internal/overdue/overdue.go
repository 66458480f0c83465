// Package overdue bounds readings and writes that cannot be broken off. A system call on a file system whose server is gone does
// not return, and the goroutine that has made it stays; so no second one is made while one is under way, and nobody waits for
// ever.
package overdue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Reading is one kind of reading, of which no more than one is under way. Safe for concurrent use.
type Reading[T any] struct {
	what    string
	timeout time.Duration
	read    func() (T, error)

	mu  sync.Mutex
	now *flight[T]
}

type flight[T any] struct {
	began time.Time
	done  chan struct{} // closed when what follows is there
	value T
	err   error
}

// New makes a reading. what is its name in errors; timeout is how long anybody waits for one, counted from its beginning.
func New[T any](what string, timeout time.Duration, read func() (T, error)) *Reading[T] {
	return &Reading[T]{what: what, timeout: timeout, read: read}
}

// Get reads, or joins the reading that is under way. It returns when that has ended, or with an error when it takes longer than
// is waited, or when ctx ends. While a reading hangs, the error is the same each time.
func (r *Reading[T]) Get(ctx context.Context) (T, error) {
	f := r.join()
	if !f.ended(ctx, r.timeout) {
		var none T
		return none, f.overdue(r.what, "read")
	}
	return f.value, f.err
}

// ended waits for the flight's end, until it has taken longer than timeout or ctx ends, and reports whether it has ended.
func (f *flight[T]) ended(ctx context.Context, timeout time.Duration) bool {
	rest := time.NewTimer(time.Until(f.began.Add(timeout)))
	defer rest.Stop()
	select {
	case <-f.done:
	case <-rest.C:
	case <-ctx.Done():
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// overdue is the error of one that has not ended; done is what is done to it.
func (f *flight[T]) overdue(what, done string) error {
	return fmt.Errorf("%s: it is being %s since %s and has not come to an end, as where a file server is gone", what, done,
		f.began.UTC().Format(time.RFC3339))
}

// join gives the reading that is under way, and begins one where there is none.
func (r *Reading[T]) join() *flight[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		return r.now
	}
	f := &flight[T]{began: time.Now(), done: make(chan struct{})}
	r.now = f
	go func() {
		defer func() {
			if p := recover(); p != nil { // one reading's bug; nobody else is here to take it
				f.err = fmt.Errorf("%s: panic: %v", r.what, p)
			}
			r.mu.Lock()
			r.now = nil
			r.mu.Unlock()
			close(f.done)
		}()
		f.value, f.err = r.read()
	}()
	return f
}
