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
		f.run(r.what, r.read)
		r.mu.Lock()
		r.now = nil
		r.mu.Unlock()
		close(f.done)
	}()
	return f
}

// run takes what do gives. A panic of it is one error: nobody else is here to take it.
func (f *flight[T]) run(what string, do func() (T, error)) {
	defer func() {
		if p := recover(); p != nil {
			f.err = fmt.Errorf("%s: panic: %v", what, p)
		}
	}()
	f.value, f.err = do()
}

// Writing is something that is written whole each time, as a checkpoint is. No more than one write of it is under way, and each
// takes the value that was set last when it begins: so an older value is never written over a newer one, whoever asks for it, and
// in whatever order. Safe for concurrent use.
type Writing[T any] struct {
	what    string
	timeout time.Duration
	write   func(T) error

	mu        sync.Mutex
	newest    T
	set       bool
	now, next *flight[struct{}] // under way; to be begun when that has ended
}

// NewWriting makes one. what is its name in errors; timeout is how long anybody waits for one write, counted from its beginning.
func NewWriting[T any](what string, timeout time.Duration, write func(T) error) *Writing[T] {
	return &Writing[T]{what: what, timeout: timeout, write: write}
}

// Set says what is to be written from now on; the value must not be changed any more. It neither writes nor waits.
func (w *Writing[T]) Set(value T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest, w.set = value, true
}

// Newest is the value that was set last, and whether one was.
func (w *Writing[T]) Newest() (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest, w.set
}

// Flush writes what was set last, after the write that is under way. It returns when that is done, or with an error when one of
// the two takes longer than is waited: then the write is made all the same, as soon as the one before it ends. While a write
// hangs, the error is the same each time, and comes at once. No context breaks the wait off: who stops is to leave behind no
// write that a moment would have brought to an end, and twice the timeout is the longest.
func (w *Writing[T]) Flush() error {
	before, f := w.join()
	for _, f := range []*flight[struct{}]{before, f} {
		if f != nil && !f.ended(context.Background(), w.timeout) {
			return f.overdue(w.what, "written")
		}
	}
	return f.err
}

// join gives the write that takes what was set last, and the one under way before it, if any.
func (w *Writing[T]) join() (before, f *flight[struct{}]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == nil {
		w.begin(&flight[struct{}]{done: make(chan struct{})})
		return nil, w.now
	}
	if w.next == nil {
		w.next = &flight[struct{}]{done: make(chan struct{})}
	}
	return w.now, w.next
}

// begin writes what was set last. mu is held.
func (w *Writing[T]) begin(f *flight[struct{}]) {
	f.began, w.now = time.Now(), f
	value := w.newest
	go func() {
		f.run(w.what, func() (struct{}, error) { return struct{}{}, w.write(value) })
		w.mu.Lock()
		next := w.next
		w.now, w.next = nil, nil
		if next != nil {
			w.begin(next)
		}
		w.mu.Unlock()
		close(f.done)
	}()
}
