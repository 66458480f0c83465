// Package shares bounds the work that clients cause on the agent's listeners, so that none of them shuts out another.
//
// A [Limit] counts the work in progress by keys, from the outermost to the innermost: the client, the namespace, the pod. A key
// holds at most half of the places that the other keys beside it leave: the first client takes one half at the most, the second a
// quarter, and so on. The same is true of namespaces within a client's share, and within these of pods. For the API server that
// share is of all users of kubectl.
//
// Of eight places or more, one in eight is kept for keys that hold none, so that a newcomer finds one beside many others. When
// there are more newcomers than that, the next is refused. Another one in eight is kept for pods of kube-system.
package shares

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// SystemKey is the key of the namespace of the cluster's own pods. Only administrators can use the places that are kept for it.
const SystemKey = "namespace kube-system"

// Limit is a number of places. Safe for concurrent use.
type Limit struct {
	name string
	most int
	wait *Limit // places to wait in; nil: requests do not wait

	mu      sync.Mutex
	root    level
	waiting []*waiter // the oldest first
}

// level counts the places of one key, and of the keys below it.
type level struct {
	held  int
	below map[string]*level
}

// waiter waits for a place.
type waiter struct {
	keys []string
	got  chan struct{} // closed when it has the place
}

// New makes a limit; name is the plural of the work in errors.
func New(name string, most int) *Limit { return &Limit{name: name, most: most} }

// NewQueue makes a limit with a queue: this many requests may wait for a place, with shares of their own.
func NewQueue(name string, most, waiting int) *Limit {
	return &Limit{name: name, most: most, wait: New("waiting "+name, waiting)}
}

// FullError is the error for work that has no place. Its text names the key, unless all places are taken.
type FullError struct {
	Name       string
	Key        string // which has its share; empty: all places are taken
	Held, Most int
}

// Error implements error.
func (e *FullError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("there are %d %s, which is the limit", e.Held, e.Name)
	}
	return fmt.Sprintf("%s has %d %s, which is its share of %d", e.Key, e.Held, e.Name, e.Most)
}

// Take takes a place, or returns a *FullError. release gives it back, once.
func (l *Limit) Take(keys ...string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.full(keys); err != nil {
		return nil, err
	}
	return l.hold(keys), nil
}

// Wait takes a place like Take, but waits for one until ctx ends. Places go to the oldest requests that their shares allow.
func (l *Limit) Wait(ctx context.Context, keys ...string) (release func(), err error) {
	l.mu.Lock()
	full := l.full(keys)
	if full == nil {
		defer l.mu.Unlock()
		return l.hold(keys), nil
	}
	leave, err := l.wait.Take(keys...)
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	defer leave()
	w := &waiter{keys, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	select {
	case <-w.got:
		return l.releaser(keys), nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return nil, full
	}
	return l.releaser(keys), nil // it came at the same time
}

// SetMost changes the number of places. Places that are taken stay.
func (l *Limit) SetMost(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
}

// Held returns the number of places that are taken.
func (l *Limit) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.root.held
}

// full returns the reason that there is no place for the keys; nil: there is one.
func (l *Limit) full(keys []string) error {
	if l.root.held >= l.most {
		return &FullError{l.name, "", l.root.held, l.most}
	}
	capacity, at := l.most, &l.root
	system := slices.Index(keys, SystemKey)
	for i, key := range keys {
		next := at.below[key]
		if next == nil {
			next = &level{}
		}
		left := capacity - (at.held - next.held) // by the others
		share, kept := (left+1)/2, capacity/8
		switch {
		case i < system: // the client's other places do not count
			share, kept = left, 0
		case system >= 0:
			kept = 0
		case next.held > 0:
			kept *= 2
		}
		if next.held >= share || capacity-at.held <= kept && kept > 0 {
			return &FullError{l.name, key, next.held, l.most}
		}
		capacity, at = share, next
	}
	return nil
}

func (l *Limit) hold(keys []string) (release func()) {
	at := &l.root
	at.held++
	for _, key := range keys {
		if at.below[key] == nil {
			if at.below == nil {
				at.below = map[string]*level{}
			}
			at.below[key] = &level{}
		}
		at = at.below[key]
		at.held++
	}
	return l.releaser(keys)
}

// releaser returns the function that gives a place back, and has it taken by requests that wait.
func (l *Limit) releaser(keys []string) func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		at := &l.root
		at.held--
		for _, key := range keys {
			next := at.below[key]
			if next.held--; next.held == 0 {
				delete(at.below, key)
				break // nothing below it is held, either
			}
			at = next
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
			if l.full(w.keys) != nil {
				return false
			}
			l.hold(w.keys)
			close(w.got)
			return true
		})
	})
}

type clientKey struct{}

// WithClient names the client of a request, once it is known.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// Client returns the client of a request: its name, or its address.
func Client(r *http.Request) string {
	if name, ok := r.Context().Value(clientKey{}).(string); ok {
		return name
	}
	if at, ok := Address(r.RemoteAddr); ok {
		return at.String()
	}
	return "the socket"
}

// Address returns a client's address; of IPv6 the first 64 bits, since the others are its own to choose. A unix socket has none.
func Address(remote string) (netip.Prefix, bool) {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}, false
	}
	address := at.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	key, err := address.Prefix(bits)
	return key, err == nil
}
