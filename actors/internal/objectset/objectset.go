// Package objectset holds the ConfigMaps, Secrets, Services and RuntimeClasses of this node. The objects actor publishes
// them; volumes, pulls, sandboxes and containers read them. There are two separate sets: a folder's (--object-dir), for
// static pods, and the API server's, for its own pods. Errors and logs never contain the data of an object.
package objectset

import (
	"errors"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Key identifies an object of a kind.
type Key struct{ Namespace, Name string }

// Set is all objects of the folder. Immutable once published.
type Set struct {
	ConfigMaps map[Key]*v1.ConfigMap
	Secrets    map[Key]*v1.Secret
	// RuntimeClasses are handlers of the runtime by names of classes.
	RuntimeClasses map[string]string
	// Uncertain is set while objects of an earlier agent may be missing: the folder was empty or unreadable when this agent
	// started, or a file in it is broken since then. Gone are the objects that were there since, and were removed.
	Uncertain bool
	Gone      map[Ref]bool
}

// Errors of a board without objects.
var (
	ErrNone   = errors.New("this node has no folder of ConfigMaps and Secrets; --object-dir names one")
	ErrUnread = errors.New("the folder of ConfigMaps and Secrets (--object-dir) has not been read yet")
)

// Board holds the newest of both sets. Safe for concurrent use. The zero value is of a node with a folder; a nil board is of
// a node that has no objects.
type Board struct {
	mu       sync.Mutex
	noFolder bool
	cluster  bool
	set      *Set
	version  uint64         // grows with each change of either set
	ofFolder uint64         // the version at which set was read first, or an object went
	changes  map[Ref]uint64 // the versions at which objects of set were added or changed
	readings map[Ref]reading
	namers   map[Ref]map[types.UID]bool // the pods that name objects of the API server; immutable
	services allObjects[Key, *v1.Service]
	classes  allObjects[string, string] // RuntimeClasses: handlers by name
	changed  chan struct{}              // closed at the next change; nil without waiters
}

// NewBoard is a board of a node with or without a folder of objects.
func NewBoard(folder bool) *Board { return &Board{noFolder: !folder} }

// Publish puts the folder's set in place of the one before and returns the board's version, which grows with each change.
func (b *Board) Publish(s *Set) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set == nil || !equality.Semantic.DeepEqual(b.set, s) {
		b.change()
		b.compare(s)
		b.set = s
	}
	return b.version
}

// compare notes which objects of the folder changed, so that a change touches only pods that refer to one of them.
func (b *Board) compare(s *Set) {
	before := b.set
	if before == nil {
		b.changes, b.ofFolder = map[Ref]uint64{}, b.version
		before = &Set{}
	}
	if before.Uncertain && !s.Uncertain {
		b.ofFolder = b.version
	}
	gone := changed(b, ConfigMap, before.ConfigMaps, s.ConfigMaps)
	gone = changed(b, Secret, before.Secrets, s.Secrets) || gone
	if gone || !maps.Equal(before.RuntimeClasses, s.RuntimeClasses) {
		b.ofFolder = b.version
	}
}

// changed notes the objects of a kind that were added or changed. It reports whether one went.
func changed[T any](b *Board, kind Kind, before, now map[Key]T) (gone bool) {
	for k, object := range now {
		if was, there := before[k]; !there || !equality.Semantic.DeepEqual(was, object) {
			b.changes[Ref{kind, k.Namespace, k.Name}] = b.version
		}
	}
	for k := range before {
		if _, there := now[k]; !there {
			delete(b.changes, Ref{kind, k.Namespace, k.Name})
			gone = true
		}
	}
	return gone
}

// change increases the version and wakes waiting readers.
func (b *Board) change() {
	b.version++
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Version increases with each change on the board.
func (b *Board) Version() uint64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// VersionOf is the version at which something changed last that this pod may read.
func (b *Board) VersionOf(pod *v1.Pod) (version uint64) {
	if b == nil || pod == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !OfAPIServer(pod) {
		version = b.ofFolder
		for r := range Refs(pod) {
			version = max(version, b.changes[r])
		}
		return version
	}
	for r := range Refs(pod) {
		version = max(version, b.readings[r].version)
	}
	return version
}

// ConfigMap returns an object from the pod's namespace; it is shared and immutable. It returns an error if the object's
// existence is unknown.
func (b *Board) ConfigMap(pod *v1.Pod, name string) (object *v1.ConfigMap, found bool, err error) {
	return lookUp[*v1.ConfigMap](b, pod, ConfigMap, name, func(s *Set, k Key) (*v1.ConfigMap, bool) {
		object, found := s.ConfigMaps[k]
		return object, found
	})
}

// Secret returns an object from the pod's namespace; it is shared and immutable. It returns an error if the object's
// existence is unknown.
func (b *Board) Secret(pod *v1.Pod, name string) (object *v1.Secret, found bool, err error) {
	return lookUp[*v1.Secret](b, pod, Secret, name, func(s *Set, k Key) (*v1.Secret, bool) {
		object, found := s.Secrets[k]
		return object, found
	})
}

// MayExist returns an error if an object that a static pod refers to is absent, and may exist: its file could not be read since
// the agent started. A volume that has been written keeps its content then.
func (b *Board) MayExist(pod *v1.Pod, kind Kind, name string) error {
	if b == nil || OfAPIServer(pod) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set == nil || !b.set.Uncertain || b.set.Gone[Ref{kind, pod.Namespace, name}] {
		return nil
	}
	return unreadError{ErrUncertain}
}

// ErrUncertain is the error of an object that may exist.
var ErrUncertain = errors.New("files of --object-dir are missing or could not be read since the agent started")

func lookUp[T any](
	b *Board, pod *v1.Pod, kind Kind, name string, local func(*Set, Key) (T, bool),
) (object T, found bool, err error) {
	if b == nil {
		return object, false, ErrNone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if OfAPIServer(pod) {
		r := b.readings[Ref{kind, pod.Namespace, name}]
		if r.unreadFor(pod.UID) {
			return object, false, unreadError{r.err}
		}
		object, found = r.object.(T)
		return object, found, nil
	}
	switch {
	case b.noFolder:
		return object, false, ErrNone
	case b.set == nil:
		return object, false, ErrUnread
	}
	object, found = local(b.set, Key{pod.Namespace, name})
	return object, found, nil
}
