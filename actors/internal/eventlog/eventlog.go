// Package eventlog keeps the last events of this node, for its commands: in memory, and on the disk across restarts.
//
// It keeps the last 500 events. It writes them to playlet/events.json in the root folder once a minute and at the end; a
// SIGKILL loses the last minute.
package eventlog

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/shares"
)

// Room is how many events are kept. Of more, those go of the namespace and object that have the most, the least recent first. A
// message has 2 KiB at most.
const Room = 500

// version is the version of the file format.
const version = 1

// Log are the events. They are immutable. Safe for concurrent use.
type Log struct {
	path string

	mu       sync.Mutex
	sequence uint64 // counts changes
	kept     []entry
	saved    uint64        // the number that the file has
	changed  chan struct{} // closed at the next change
}

type entry struct {
	sequence uint64
	event    *v1.Event
	keys     []string
}

// Open reads the events of an earlier process. With an empty path, nothing is kept on disk. The log is usable even after an
// error.
func Open(path string) (*Log, error) {
	l := &Log{path: path, changed: make(chan struct{})}
	if path == "" {
		return l, nil
	}
	var old []*v1.Event
	err := atomicfile.Load(path, version, &old)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range old {
		if e != nil {
			l.Put(e)
		}
	}
	l.saved = l.sequence
	return l, err
}

// Keys returns the keys by which events are shared: the namespace and the object. The node's events are of the system.
func Keys(e *v1.Event) []string {
	o := &e.InvolvedObject
	if o.Namespace == "" {
		return []string{shares.SystemKey, string(o.UID)}
	}
	return []string{"namespace " + o.Namespace, string(o.UID)}
}

// Put adds an event, or a later state of one.
func (l *Log) Put(e *v1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sequence++
	l.kept = slices.DeleteFunc(l.kept, func(k entry) bool { return k.event.Namespace == e.Namespace && k.event.Name == e.Name })
	l.kept = append(l.kept, entry{l.sequence, e, Keys(e)})
	if len(l.kept) > Room {
		work := make([][]string, len(l.kept))
		for i, k := range l.kept {
			work[i] = k.keys
		}
		i := shares.Excess(work)
		l.kept = slices.Delete(l.kept, i, i+1)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Since returns the events after a sequence number, newest last, and the new sequence number.
func (l *Log) Since(sequence uint64) ([]*v1.Event, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*v1.Event
	for _, k := range l.kept {
		if k.sequence > sequence {
			out = append(out, k.event)
		}
	}
	return out, l.sequence
}

// Await waits for a change after the sequence number, or for the end of ctx.
func (l *Log) Await(ctx context.Context, sequence uint64) error {
	l.mu.Lock()
	now, changed := l.sequence, l.changed
	l.mu.Unlock()
	if now > sequence {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Save writes new events to disk. It does not sync: a power cut may lose the file.
func (l *Log) Save() error {
	events, sequence := l.Since(0)
	l.mu.Lock()
	same := l.path == "" || l.saved == sequence
	l.mu.Unlock()
	if same {
		return nil
	}
	if err := atomicfile.SaveVolatile(l.path, version, events); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = sequence
	return nil
}
