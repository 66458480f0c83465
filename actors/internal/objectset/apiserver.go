package objectset

import (
	"context"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// reading is the latest state of one object of the API server.
type reading struct {
	object  any // *v1.ConfigMap or *v1.Secret; nil where there is none
	known   bool
	version uint64 // of the board, when it changed last
	err     error  // of the last reading, where that failed
	// readers are the pods that named the object when it was read last. For another one an immutable object is unread: it is not
	// followed, and may have been made again since, with the same name (kubernetes/kubernetes#119733).
	readers map[types.UID]bool
}

// unreadFor reports whether the object has to be read for this pod.
func (r *reading) unreadFor(pod types.UID) bool {
	return !r.known || isImmutable(r.object) && !r.readers[pod]
}

// unreadError is returned for an object of the API server that has not been read yet.
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

// IsUnread reports whether err is caused by an object that has not been read yet. It may be read at any moment.
func IsUnread(err error) bool {
	_, unread := errors.AsType[unreadError](err)
	return unread
}

// allObjects is the set of all objects of a kind in the API server. Until the first read, all is nil and err has the reason.
type allObjects[K comparable, V any] struct {
	all map[K]V
	err error
}

// put takes them; the map becomes shared and immutable.
func (e *allObjects[K, V]) put(b *Board, all map[K]V) {
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

// fail records a failed read. The earlier objects remain in force.
func (e *allObjects[K, V]) fail(b *Board, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.err = err
}

// PutServices takes all Services of the API server. They become shared and immutable.
func (b *Board) PutServices(services map[Key]*v1.Service) { b.services.put(b, services) }

// FailServices records a failed read of Services. The earlier ones remain in force.
func (b *Board) FailServices(err error) { b.services.fail(b, err) }

// PutRuntimeClasses takes all RuntimeClasses of the API server: the runtime's handlers by the names of the classes. The map
// becomes shared and immutable.
func (b *Board) PutRuntimeClasses(handlers map[string]string) { b.classes.put(b, handlers) }

// FailRuntimeClasses records a failed read of RuntimeClasses. The earlier ones remain in force.
func (b *Board) FailRuntimeClasses(err error) { b.classes.fail(b, err) }

// Put records an object of the API server, or its absence for nil, and returns whether that is new to a pod. The object becomes
// shared and immutable.
func (b *Board) Put(r Ref, object any) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.readings[r]
	now := reading{object: object, known: true, version: was.version, readers: b.namers[r]}
	news = !was.known || !equality.Semantic.DeepEqual(was.object, object)
	for pod := range now.readers {
		news = news || was.unreadFor(pod)
	}
	if news {
		b.change()
		now.version = b.version
	}
	b.know(r, now)
	return news
}

// Fail records a failed read of the object. Its earlier state remains in force.
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

// Keep records which pods name objects of the API server, by UID, and drops all other objects. The maps become immutable. It
// returns the objects that are immutable, and have not been read since one of these pods named them.
func (b *Board) Keep(namers map[Ref]map[types.UID]bool) (stale []Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.namers = namers
	maps.DeleteFunc(b.readings, func(r Ref, _ reading) bool { return namers[r] == nil })
	for r, is := range b.readings {
		for pod := range namers[r] {
			if is.known && is.unreadFor(pod) {
				stale = append(stale, r)
				break
			}
		}
	}
	return stale
}

// Known counts cached objects by state: present, absent, and not read yet.
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

// Has reports whether the object has been read, present or absent.
func (b *Board) Has(r Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readings[r].known
}

// Immutable reports whether the object is present and marked immutable.
func (b *Board) Immutable(r Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return isImmutable(b.readings[r].object)
}

func isImmutable(object any) bool {
	switch o := object.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}
