package registration

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Watch is the process's watch of its own Node. It outlives the actor. It keeps the newest state only. Safe for concurrent use.
type Watch struct {
	client kubernetes.Interface
	name   string
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	begin  sync.Once
	done   sync.WaitGroup

	mu      sync.Mutex
	lists   uint64 // that have begun
	now     Seen
	changed chan struct{} // closed at the next change
}

// Seen is what the watch has seen.
type Seen struct {
	// Version grows with each change; 0 is before the first.
	Version uint64
	// Heard: whether there is a Node is known. Node is nil where there is none. Immutable.
	Heard bool
	Node  *v1.Node
	// List is the ordinal, from 1, of the list that it comes from, or that its watch began with.
	List uint64
	// Err is why nothing newer is known; nil while the watch stands.
	Err error
}

// NewWatch makes a watch that begins with the first Next. A panic in it is logged, and the watch goes on after a while.
func NewWatch(client kubernetes.Interface, name string, log *slog.Logger) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	return &Watch{client: client, name: name, log: log, ctx: ctx, cancel: cancel, changed: make(chan struct{})}
}

// Next waits for something newer than the version. When ctx ends before, it is what there is.
func (w *Watch) Next(ctx context.Context, version uint64) Seen {
	w.begin.Do(func() { w.done.Go(w.run) })
	for {
		w.mu.Lock()
		now, changed := w.now, w.changed
		w.mu.Unlock()
		if now.Version > version {
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now
		}
	}
}

// Close ends the watch for good.
func (w *Watch) Close() {
	w.cancel()
	w.begin.Do(func() {}) // none begins any more
	w.done.Wait()
}

func (w *Watch) note(change func(*Seen)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.now)
	w.now.Version++
	close(w.changed)
	w.changed = make(chan struct{})
}

// begun is how many lists have begun: one with a higher ordinal is of what there is later than this call.
func (w *Watch) begun() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func (w *Watch) beginList() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	return w.lists
}

// run lists and watches until the end. A list comes before each watch: it is of one object, and after the restoration of a backup
// a watch that goes on from where the last ended would say nothing until that is reached again.
func (w *Watch) run() {
	rest := backoff.Policy{First: retry.First, Max: retry.Max, Jitter: backoff.Half}
	failures := 0
	for w.ctx.Err() == nil {
		began := time.Now()
		err := guard.Call(w.log, "the watch of the Node", w.listAndWatch)
		if failures++; time.Since(began) > 2*rest.Max { // it stood
			failures = 1
		} else if err == nil {
			failures = min(failures, 3) // a second at most
		}
		if err != nil && w.ctx.Err() == nil {
			w.note(func(s *Seen) { s.Err = err })
		}
		select {
		case <-time.After(rest.After(failures, rand.Float64())): //nolint:gosec // spreads the nodes' requests
		case <-w.ctx.Done():
		}
	}
}

// listAndWatch returns when what is known has to be listed anew; without an error where nothing failed.
func (w *Watch) listAndWatch() error {
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()}
	ordinal := w.beginList()
	list, err := w.client.CoreV1().Nodes().List(w.ctx, o)
	if err != nil {
		return err
	}
	var found *v1.Node
	for i := range list.Items {
		if list.Items[i].Name == w.name {
			found = &list.Items[i]
		}
	}
	w.note(func(s *Seen) { s.Heard, s.Node, s.List, s.Err = true, found, ordinal, nil })
	seconds := int64(300 + rand.IntN(300)) //nolint:gosec // spreads the nodes' requests
	o.ResourceVersion, o.TimeoutSeconds = list.ResourceVersion, &seconds
	stream, err := w.client.CoreV1().Nodes().Watch(w.ctx, o)
	if err != nil {
		return err
	}
	w.follow(stream)
	return nil
}

// follow takes the events of the stream until it ends, also with 410 (Gone).
func (w *Watch) follow(stream watch.Interface) {
	defer stream.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case e, open := <-stream.ResultChan():
			if !open {
				return
			}
			node, isNode := e.Object.(*v1.Node)
			if e.Type == watch.Error || !isNode {
				return
			}
			if e.Type == watch.Bookmark || node.Name != w.name {
				continue
			}
			if e.Type == watch.Deleted {
				node = nil
			}
			w.note(func(s *Seen) { s.Heard, s.Node, s.Err = true, node, nil })
		}
	}
}
