// Package overdue bounds reads and writes that cannot be cancelled. A system call on a file system without its server never
// returns, and its goroutine stays. Therefore only one runs at a time, and callers stop waiting at a deadline.
package overdue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Reader runs one read at a time. It is safe for concurrent use.
type Reader[T any] struct {
	name    string
	timeout time.Duration
	read    func() (T, error)

	mu  sync.Mutex
	now *flight[T]
}

type flight[T any] struct {
	began time.Time
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// New returns a Reader. Errors begin with name. Callers wait until timeout after the start of a read.
func New[T any](name string, timeout time.Duration, read func() (T, error)) *Reader[T] {
	return &Reader[T]{name: name, timeout: timeout, read: read}
}

// Get starts a read, or joins the one in progress, and returns its result. It returns an error at the timeout or at the end
// of ctx. While a read hangs, the error text stays the same.
func (r *Reader[T]) Get(ctx context.Context) (T, error) {
	f := r.join()
	if !f.wait(ctx, r.timeout) {
		var none T
		return none, f.overdue(r.name, "read")
	}
	return f.value, f.err
}

// wait waits for the flight's end, until it has taken longer than timeout or ctx ends, and reports whether it has ended.
func (f *flight[T]) wait(ctx context.Context, timeout time.Duration) bool {
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

// overdue returns the error of an unfinished flight; done is the participle of its operation.
func (f *flight[T]) overdue(name, done string) error {
	return fmt.Errorf("%s: it is being %s since %s and has not come to an end, as where a file server is gone", name, done,
		f.began.UTC().Format(time.RFC3339))
}

// join returns the read in progress, and starts one if there is none.
func (r *Reader[T]) join() *flight[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		return r.now
	}
	f := &flight[T]{began: time.Now(), done: make(chan struct{})}
	r.now = f
	go func() {
		f.run(r.name, r.read)
		r.mu.Lock()
		r.now = nil
		r.mu.Unlock()
		close(f.done)
	}()
	return f
}

// run stores the result of do. It turns a panic into an error, because its goroutine has no other recovery.
func (f *flight[T]) run(name string, do func() (T, error)) {
	defer func() {
		if p := recover(); p != nil {
			f.err = fmt.Errorf("%s: panic: %v", name, p)
		}
	}()
	f.value, f.err = do()
}

// Writer writes a value as a whole, such as a checkpoint. One write runs at a time, and each takes the newest value at its
// start. An older value therefore never overwrites a newer one. It is safe for concurrent use.
type Writer[T any] struct {
	name    string
	timeout time.Duration
	write   func(T) error

	mu        sync.Mutex
	newest    T
	set       bool
	now, next *flight[struct{}] // the write in progress, and the one after it
}

// NewWriter returns a Writer. Errors begin with name. Callers wait until timeout after the start of a write.
func NewWriter[T any](name string, timeout time.Duration, write func(T) error) *Writer[T] {
	return &Writer[T]{name: name, timeout: timeout, write: write}
}

// Set sets the value for the following writes; the caller must not change it afterwards. It neither writes nor blocks.
func (w *Writer[T]) Set(value T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest, w.set = value, true
}

// Newest is the value that was set last, and whether one was.
func (w *Writer[T]) Newest() (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest, w.set
}

// Flush writes the newest value, after the write in progress. It returns when that is done, or an error when one of the two
// exceeds the timeout; the write still follows. While a write hangs, the error text stays the same and Flush returns at once.
// Flush takes no context: a stopping caller should not abandon a write that is about to end. It blocks for at most twice the
// timeout. Before the first Set there is nothing to write.
func (w *Writer[T]) Flush() error {
	if _, set := w.Newest(); !set {
		return nil
	}
	before, f := w.join()
	for _, f := range []*flight[struct{}]{before, f} {
		if f != nil && !f.wait(context.Background(), w.timeout) {
			return f.overdue(w.name, "written")
		}
	}
	return f.err
}

// join returns the write that will take the newest value, and the write in progress before it, if any.
func (w *Writer[T]) join() (before, f *flight[struct{}]) {
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

// begin starts a write of the newest value. The caller holds mu.
func (w *Writer[T]) begin(f *flight[struct{}]) {
	f.began, w.now = time.Now(), f
	value := w.newest
	go func() {
		f.run(w.name, func() (struct{}, error) { return struct{}{}, w.write(value) })
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
