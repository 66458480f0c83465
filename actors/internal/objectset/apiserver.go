package objectset

import (
	"context"
	"errors"
	"maps"
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

func (e unreadError) Error() string {
	switch {
	case e.why == nil:
		return "it has not been read from the API server yet"
	case errors.Is(e.why, ErrUnread):
		return e.why.Error()
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

// every is all that the API server has of a kind; all is nil while they have not been read, and err says why.
type every[K comparable, V any] struct {
	all map[K]V
	err error
}

// put takes them; the map becomes shared and immutable.
func (e *every[K, V]) put(b *Board, all map[K]V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := e.all == nil
	if e.all, e.err = all, nil; all == nil {
		e.all = map[K]V{}
	}
	if first {
		b.change() // sandboxes and containers wait for them
	}
}

// fail takes that they could not be read; what was known of them stays in force.
func (e *every[K, V]) fail(b *Board, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.err = err
}

// PutServices takes all Services of the API server. They become shared and immutable.
func (b *Board) PutServices(services map[Key]*v1.Service) { b.services.put(b, services) }

// FailServices takes that Services could not be read; what was known of them stays in force.
func (b *Board) FailServices(err error) { b.services.fail(b, err) }

// PutRuntimeClasses takes all RuntimeClasses of the API server: the runtime's handlers by the names of the classes. The map
// becomes shared and immutable.
func (b *Board) PutRuntimeClasses(handlers map[string]string) { b.classes.put(b, handlers) }

// FailRuntimeClasses takes that RuntimeClasses could not be read; what was known of them stays in force.
func (b *Board) FailRuntimeClasses(err error) { b.classes.fail(b, err) }

// Put takes what the API server has of the object, nil where it has none, and says whether that is news. The object becomes
// shared and immutable.
func (b *Board) Put(r Ref, object any) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.readings[r]
	now := reading{object: object, known: true, version: was.version}
	if news = !was.known || !equality.Semantic.DeepEqual(was.object, object); news {
		b.change()
		now.version = b.version
	}
	b.know(r, now)
	return news
}

// Fail takes that the object could not be read; what was known of it stays in force.
func (b *Board) Fail(r Ref, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.readings[r]
	was.err = err
	b.know(r, was)
}

func (b *Board) know(r Ref, is reading) {
	if b.readings == nil {
		b.readings = map[Ref]reading{}
	}
	b.readings[r] = is
}

// Keep forgets what is known of all other objects of the API server.
func (b *Board) Keep(refs map[Ref]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.readings, func(r Ref, _ reading) bool { return !refs[r] })
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
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
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
