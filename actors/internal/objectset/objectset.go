// Package objectset holds the ConfigMaps and Secrets that this node has: what the actor objects publishes and volumes and
// containers read. It never says what is in an object.
package objectset

import (
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Key names an object among those of its kind.
type Key struct{ Namespace, Name string }

// Set is all objects that there are. Immutable once published.
type Set struct {
	ConfigMaps map[Key]*v1.ConfigMap
	Secrets    map[Key]*v1.Secret
}

// Errors of a board without objects.
var (
	ErrNone   = errors.New("this node has no folder of ConfigMaps and Secrets; --object-dir names one")
	ErrUnread = errors.New("the folder of ConfigMaps and Secrets (--object-dir) has not been read yet")
)

// Board holds the newest set. Safe for concurrent use; a nil board is of a node that has no objects.
type Board struct {
	mu      sync.Mutex
	set     *Set
	version uint64
}

// Publish puts a set in place of the one before and returns its version, which grows with each set that differs.
func (b *Board) Publish(s *Set) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set == nil || !equality.Semantic.DeepEqual(b.set, s) {
		b.version++
		b.set = s
	}
	return b.version
}

func (b *Board) read() (*Set, error) {
	if b == nil {
		return nil, ErrNone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set == nil {
		return nil, ErrUnread
	}
	return b.set, nil
}

// ConfigMap returns the object; it is shared and immutable. An error says that it is not known whether there is one.
func (b *Board) ConfigMap(namespace, name string) (object *v1.ConfigMap, found bool, err error) {
	s, err := b.read()
	if err != nil {
		return nil, false, err
	}
	object, found = s.ConfigMaps[Key{namespace, name}]
	return object, found, nil
}

// Secret returns the object; it is shared and immutable. An error says that it is not known whether there is one.
func (b *Board) Secret(namespace, name string) (object *v1.Secret, found bool, err error) {
	s, err := b.read()
	if err != nil {
		return nil, false, err
	}
	object, found = s.Secrets[Key{namespace, name}]
	return object, found, nil
}
