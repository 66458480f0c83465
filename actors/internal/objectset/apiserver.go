package objectset

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// reading is what is known of one object of the API server.
type reading struct {
	object  any // *v1.ConfigMap or *v1.Secret; nil where there is none
	known   bool
	version uint64 // of the board, when it changed last
	err     error  // of the last reading, where that failed
}

// unreadError is of an object of the API server of which nothing is known yet.
type unreadError struct{ why error }

// Error implements error.
func (e unreadError) Error() string {
	if e.why == nil {
		return "it has not been read from the API server yet"
	}
	return "it has not been read from the API server yet: " + e.why.Error()
}

// Unwrap gives why the last reading failed.
func (e unreadError) Unwrap() error { return e.why }

// IsUnread says that an object of the API server is not known yet, which may change at any moment.
func IsUnread(err error) bool {
	_, unread := errors.AsType[unreadError](err)
	return unread
}

// Put takes what the API server has of the object, nil where it has none, and says whether that is news. The object becomes
// shared and immutable.
func (b *Board) Put(r Ref, object any) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.readings[r]
	if b.readings == nil {
		b.readings = map[Ref]reading{}
	}
	now := reading{object: object, known: true, version: was.version}
	if news = !was.known || !equality.Semantic.DeepEqual(was.object, object); news {
		b.change()
		now.version = b.version
	}
	b.readings[r] = now
	return news
}

// Fail takes that the object could not be read; what was known of it stays in force.
func (b *Board) Fail(r Ref, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readings == nil {
		b.readings = map[Ref]reading{}
	}
	was := b.readings[r]
	was.err = err
	b.readings[r] = was
}

// Keep forgets what is known of all other objects of the API server.
func (b *Board) Keep(refs map[Ref]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.readings {
		if !refs[r] {
			delete(b.readings, r)
		}
	}
}

// Known counts what is known of the API server's objects: those that are there, those that are not, and those of which it
// is not known yet.
func (b *Board) Known() (there, missing, unread int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.readings {
		switch {
		case !r.known:
			unread++
		case r.object == nil:
			missing++
		default:
			there++
		}
	}
	return there, missing, unread
}

// Settle calls read, which reads from the board, until its error is no longer that something was not read yet; for no
// longer than timeout or ctx. It returns the last error of read.
func (b *Board) Settle(ctx context.Context, timeout time.Duration, read func() error) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := b.next()
		err := read()
		if !IsUnread(err) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		case <-timer.C:
			return err
		}
	}
}

// next is closed at the next change.
func (b *Board) next() <-chan struct{} {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turned == nil {
		b.turned = make(chan struct{})
	}
	return b.turned
}

// Has says whether anything is known of the object.
func (b *Board) Has(r Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readings[r].known
}

// Immutable says whether the object is there and says of itself that what it holds never changes.
func (b *Board) Immutable(r Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := b.readings[r].object.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}
