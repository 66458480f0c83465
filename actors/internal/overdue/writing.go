package overdue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

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
		defer func() {
			if p := recover(); p != nil { // one write's bug; nobody else is here to take it
				f.err = fmt.Errorf("%s: panic: %v", w.what, p)
			}
			w.mu.Lock()
			next := w.next
			w.now, w.next = nil, nil
			if next != nil {
				w.begin(next)
			}
			w.mu.Unlock()
			close(f.done)
		}()
		f.err = w.write(value)
	}()
}
