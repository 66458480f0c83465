package registration

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Watch is the process's watch of its own Node. It outlives the actor. It keeps the newest word only. Safe for concurrent use.
type Watch struct {
	client kubernetes.Interface
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	begin  sync.Once
	done   sync.WaitGroup

	mu      sync.Mutex
	now     Seen
	changed chan struct{} // closed at the next change
}

// Seen is what the watch has seen.
type Seen struct {
	// Version tells one word from another; 0 is before the first.
	Version uint64
	// Heard says that the API server has told whether there is a Node; Node is nil where there is none. Immutable.
	Heard bool
	Node  *v1.Node
	// Err is why nothing newer is known; nil while the watch stands.
	Err error
}

// NewWatch makes a watch that begins with the first Next.
func NewWatch(client kubernetes.Interface, name string) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	return &Watch{client: client, name: name, ctx: ctx, cancel: cancel, changed: make(chan struct{})}
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

// run lists and watches until the end. A list comes first, after whatever the watch could not bridge: it is of one object.
func (w *Watch) run() {
	rest := firstRest
	for w.ctx.Err() == nil {
		began := time.Now()
		err := w.listAndWatch()
		switch {
		case time.Since(began) > 2*maxRest: // it stood
			rest = firstRest
		case err == nil:
			rest = min(max(rest, firstRest), time.Second)
		}
		if err != nil && w.ctx.Err() == nil {
			w.note(func(s *Seen) { s.Err = err })
		}
		select {
		case <-time.After(rest/2 + rand.N(rest)): //nolint:gosec // spreads the nodes' requests
		case <-w.ctx.Done():
		}
		rest = min(2*rest, maxRest)
	}
}

// listAndWatch returns when what is known has to be listed anew; without an error where nothing failed.
func (w *Watch) listAndWatch() error {
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()}
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
	w.note(func(s *Seen) { s.Heard, s.Node, s.Err = true, found, nil })
	o.ResourceVersion, o.AllowWatchBookmarks = list.ResourceVersion, true
	for w.ctx.Err() == nil {
		seconds := int64(300 + rand.IntN(300)) //nolint:gosec // spreads the nodes' requests
		o.TimeoutSeconds = &seconds
		stream, err := w.client.CoreV1().Nodes().Watch(w.ctx, o)
		if err != nil {
			return err
		}
		began := time.Now()
		version, ok := w.follow(stream)
		o.ResourceVersion = cmp.Or(version, o.ResourceVersion)
		if !ok || time.Since(began) < time.Second {
			return nil
		}
	}
	return nil
}

// follow takes what the stream tells until it ends, and gives the version that it came to. It is not ok where the API server
// can tell no more from there (410).
func (w *Watch) follow(stream watch.Interface) (version string, ok bool) {
	defer stream.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return version, true
		case e, open := <-stream.ResultChan():
			if !open {
				return version, true
			}
			node, isNode := e.Object.(*v1.Node)
			if e.Type == watch.Error || !isNode {
				return version, false
			}
			version = node.ResourceVersion
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

// older says that a is the same object as b at an earlier time: the answer to a write may come before the watch tells what
// was before it.
func older(a, b *v1.Node) bool {
	if a == nil || b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}
