// Package stall provides deadlines for work that would start from zero if it were interrupted. Such a deadline ends work that
// makes no progress, and never work that does.
package stall

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Context is the context of one operation. Its deadline moves with progress and is not known beforehand.
type Context struct {
	context.Context // the parent
	limit           time.Duration
	note            atomic.Value // of type noteBox
	moved           atomic.Bool  // since the timer was set

	mu    sync.Mutex
	done  chan struct{}
	err   error
	timer clock.Timer
	leave func() bool // ends the wait for the parent
}

type (
	key     struct{}
	noteBox struct{ note any }
)

// New returns a context that ends when its operation has reported no progress for the limit, which must be positive, and at the
// latest after twice the limit. Err is context.DeadlineExceeded then. It also ends with its parent, and by the returned function.
func New(parent context.Context, clocks clock.WithDelayedExecution, limit time.Duration) (*Context, context.CancelFunc) {
	c := &Context{Context: parent, limit: limit, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = clocks.AfterFunc(limit, func() { go c.expire(clocks) }) // a fake clock fires under its own lock
	c.leave = context.AfterFunc(parent, func() { c.end(parent.Err()) })
	return c, func() { c.end(context.Canceled) }
}

func (c *Context) expire(clocks clock.WithDelayedExecution) {
	if !c.moved.Swap(false) {
		c.end(context.DeadlineExceeded)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.timer = clocks.AfterFunc(c.limit, func() { go c.expire(clocks) })
	}
}

func (c *Context) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.timer.Stop()
		c.leave()
		close(c.done)
	}
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Value implements context.Context.
func (c *Context) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

// Note returns the note of the last progress, or nil.
func (c *Context) Note() any {
	last, _ := c.note.Load().(noteBox)
	return last.note
}

// Progress reports that the operation of ctx has made progress. A note describes the state for people, and stays until the next
// note; it may be nil. Progress is cheap enough to be called for each file.
func Progress(ctx context.Context, note any) {
	if c, is := ctx.Value(key{}).(*Context); is {
		c.moved.Store(true)
		if note != nil {
			c.note.Store(noteBox{note})
		}
	}
}
