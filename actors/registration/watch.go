package registration

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Watch is the process's watch of its own Node. It outlives the actor, and keeps the newest state alone. Safe for concurrent
// use.
type Watch struct {
	client kubernetes.Interface
	name   string
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	begin  sync.Once
	done   sync.WaitGroup

	mu      sync.Mutex
	now     Observation
	changed chan struct{} // closed at the next change
}

// Observation is an observation of the watch.
type Observation struct {
	// Version grows with each change; it is 0 before the first.
	Version uint64
	// Heard grows with each list and change of the Node; it is 0 before the first answer. Node is nil if it does not exist.
	// Immutable.
	Heard uint64
	Node  *v1.Node
	// Err is the failure of the watch; nil while it works.
	Err error
}

// NewWatch returns a watch that begins with the first Next. A panic in it is logged, and the watch restarts after a pause.
func NewWatch(client kubernetes.Interface, name string, log *slog.Logger) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	return &Watch{client: client, name: name, log: log, ctx: ctx, cancel: cancel, changed: make(chan struct{})}
}

// Next waits for an observation newer than the version. If ctx ends first it returns the present one.
func (w *Watch) Next(ctx context.Context, version uint64) Observation {
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
	w.begin.Do(func() {}) // a later Next begins nothing
	w.done.Wait()
}

func (w *Watch) note(change func(*Observation)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.now)
	w.now.Version++
	close(w.changed)
	w.changed = make(chan struct{})
}

// run runs a reflector until Close, and another after a panic.
func (w *Watch) run() {
	for w.ctx.Err() == nil {
		err := guard.Call(w.log, "the watch of the Node", func() error {
			cache.NewReflectorWithOptions(w.listWatch(), &v1.Node{}, w.store(), cache.ReflectorOptions{
				Name:    "Node",
				Backoff: &wait.Backoff{Duration: retry.First, Factor: 2, Jitter: 0.5, Cap: retry.Max, Steps: 20},
			}).RunWithContext(apiclient.Quiet(w.ctx))
			return nil
		})
		if err != nil {
			w.answered(err)
			select {
			case <-time.After(time.Second):
			case <-w.ctx.Done():
			}
		}
	}
}

func (w *Watch) listWatch() cache.ListerWatcher {
	nodes := w.client.CoreV1().Nodes()
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.FieldSelector = own; o.ResourceVersion == "0" {
				o.ResourceVersion = "" // the API server's cache may lag behind
			}
			list, err := nodes.List(ctx, o)
			w.answered(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = own
			stream, err := nodes.Watch(ctx, o)
			w.answered(err)
			return stream, err
		},
	}, w.client)
}

// answered records whether a request failed. An expired resource version is no failure: the reflector lists again.
func (w *Watch) answered(err error) {
	if apiclient.Gone(err) {
		err = nil
	}
	w.mu.Lock()
	same := err == nil && w.now.Err == nil
	w.mu.Unlock()
	if !same && w.ctx.Err() == nil {
		w.note(func(s *Observation) { s.Err = err })
	}
}

// store returns the store that the reflector fills.
func (w *Watch) store() apiclient.Store {
	has := func(node *v1.Node) { w.note(func(s *Observation) { s.Heard, s.Node = s.Heard+1, node }) }
	return apiclient.Store{
		Put:  func(node any) { has(node.(*v1.Node)) },
		Drop: func(any) { has(nil) },
		All: func(nodes []any) {
			if len(nodes) == 0 {
				has(nil)
			} else {
				has(nodes[0].(*v1.Node))
			}
		},
	}
}
