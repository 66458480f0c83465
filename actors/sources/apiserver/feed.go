package apiserver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// FeedOptions configures a Feed.
type FeedOptions struct {
	Clients  *apiclient.Clients
	NodeName string
	Clock    clock.Clock  // nil: the real one
	Log      *slog.Logger // nil: discards
}

// Feed watches the pods of this node and caches them. It belongs to the process: a restarted actor finds the same objects,
// and the watch continues. Safe for concurrent use.
type Feed struct {
	opts FeedOptions
	stop context.CancelFunc
	ctx  context.Context
	run  sync.Once
	done sync.WaitGroup

	mu      sync.Mutex
	table   *table
	view    View
	dirty   bool          // the view's lists are older than the table
	changed chan struct{} // closed at the next change, and replaced
	asked   time.Time     // when the pending request was sent; zero for none
	gone    int           // consecutive expired resource versions (410)
}

// View is the state at one time. Immutable.
type View struct {
	// Version counts the changes; 0 is before the first one.
	Version uint64
	// Heard means that a complete list was received. Before that, Served and Wanted are meaningless.
	Heard bool
	// Served are all pods of this node, mirror pods included. Wanted are the pods to run, by the kubelet's rules. An object
	// in it changes only if the desired pod does.
	Served, Wanted []*v1.Pod
	// At is when the API server last confirmed the view.
	At time.Time
	// Problem explains in plain words why the API server cannot be read, and Since is when that began. It is empty without a
	// problem.
	Problem string
	Since   time.Time
	// Odd lists pods that can never run, in plain words.
	Odd []string
}

// hangsAfter is how long a request to an API server that answered before may be pending until it is a problem.
const hangsAfter = 30 * time.Second

// NewFeed returns a feed that sends no request before the first Wait.
func NewFeed(o FeedOptions) *Feed {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Feed{opts: o, table: newTable(o.NodeName), changed: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Close ends the watch and waits for its end.
func (f *Feed) Close() {
	f.stop()
	f.run.Do(func() {})
	f.done.Wait()
}

// Wait returns the view as soon as it is newer than the given version, or when ctx ends.
func (f *Feed) Wait(ctx context.Context, after uint64) View {
	f.run.Do(func() { f.done.Go(f.watch) })
	for {
		view, changed := f.now()
		if view.Version > after {
			return view
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return view
		}
	}
}

// now returns the newest view, and a channel that is closed when there is a newer one.
func (f *Feed) now() (View, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirty {
		f.dirty = false
		f.view.Served, f.view.Wanted, f.view.Odd = f.table.lists()
	}
	view := f.view
	hangs := !f.asked.IsZero() && (!view.Heard || f.opts.Clock.Since(f.asked) > hangsAfter)
	if view.Problem == "" && hangs {
		view.Problem, view.Since = "it has not answered yet", f.asked
	}
	return view, f.changed
}

// news records a change. The caller holds the lock.
func (f *Feed) news() {
	f.view.Version++
	close(f.changed)
	f.changed = make(chan struct{})
}

// watch runs a reflector until the feed is closed, and a new one after a panic.
func (f *Feed) watch() {
	for f.ctx.Err() == nil {
		err := guard.Call(f.opts.Log, "the watch of pods", func() error {
			// The back-off spares a server in trouble, and loses little time when it is back.
			rest := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 15 * time.Second, Steps: 20}
			cache.NewReflectorWithOptions(f.listWatch(), &v1.Pod{}, f.store(), cache.ReflectorOptions{
				Name: "pods", Clock: f.opts.Clock, Backoff: &rest,
			}).RunWithContext(apiclient.Quiet(f.ctx))
			return nil
		})
		if err != nil {
			select {
			case <-f.opts.Clock.After(time.Second):
			case <-f.ctx.Done():
			}
		}
	}
}

// store returns the reflector's store. The reflector passes only pods.
func (f *Feed) store() apiclient.Store {
	return apiclient.Store{
		Put:  func(pod any) { f.change(func(t *table, now time.Time) { t.put(pod.(*v1.Pod), now) }) },
		Drop: func(pod any) { f.change(func(t *table, _ time.Time) { t.remove(pod.(*v1.Pod)) }) },
		All: func(all []any) {
			pods := make([]*v1.Pod, 0, len(all))
			for _, pod := range all {
				pods = append(pods, pod.(*v1.Pod))
			}
			f.change(func(t *table, now time.Time) {
				t.replace(pods, now)
				f.view.Heard, f.view.Problem, f.view.Since = true, "", time.Time{}
			})
		},
	}
}

// change changes the table under the lock.
func (f *Feed) change(how func(*table, time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.opts.Clock.Now()
	how(f.table, now)
	f.dirty, f.view.At = true, now
	f.news()
}
