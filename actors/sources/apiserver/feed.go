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

// FeedOptions are what a Feed needs.
type FeedOptions struct {
	Clients  *apiclient.Clients
	NodeName string
	Clock    clock.Clock  // nil: the real one
	Log      *slog.Logger // nil: discards
}

// Feed watches the pods of this node, and has what is known of them. It belongs to the process: an actor that is started
// anew finds the same objects, and no watch is begun again. Safe for concurrent use.
type Feed struct {
	opts FeedOptions
	stop context.CancelFunc
	ctx  context.Context
	run  sync.Once
	done sync.WaitGroup

	mu      sync.Mutex
	table   *table
	view    View
	dirty   bool          // the lists of view are older than the table
	changed chan struct{} // closed at the next change, and replaced
	asked   time.Time     // since when an answer is awaited; zero when none is
	gone    int           // how often in a row the API server had forgotten what came since (410)
}

// View is all that is known at one time. Immutable.
type View struct {
	// Version counts the changes; 0 is before anything happened.
	Version uint64
	// Heard says that there was a whole list: before that, Served and Wanted mean nothing.
	Heard bool
	// Served are all pods of this node, mirror pods among them. Wanted are those to be run, on the kubelet's terms; an
	// object in it changes only with what is to be run.
	Served, Wanted []*v1.Pod
	// At is when the API server was last known to agree.
	At time.Time
	// Problem is why nothing is heard now, in plain words, and Since is since when. It is empty when all is well.
	Problem string
	Since   time.Time
	// Odd are pods that cannot be run whatever they say, in plain words.
	Odd []string
}

// hangsAfter is how long a question to an API server that answered before may be without an answer until that is a problem.
const hangsAfter = 30 * time.Second

// NewFeed is a feed at rest: nothing is asked before someone waits.
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

// Wait returns what is known as soon as it is newer than the version given, or when ctx ends.
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

// now is the newest view, and what is closed when there is a newer one.
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

// news notes a change. The lock is held.
func (f *Feed) news() {
	f.view.Version++
	close(f.changed)
	f.changed = make(chan struct{})
}

// watch runs a reflector until the feed is closed, and another after a panic.
func (f *Feed) watch() {
	for f.ctx.Err() == nil {
		err := guard.Call(f.opts.Log, "the watch of pods", func() error {
			// It spares a server that has trouble, and loses little time when it is back.
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

// store is what the reflector writes to. It gives pods alone.
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

// change changes the table.
func (f *Feed) change(how func(*table, time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.opts.Clock.Now()
	how(f.table, now)
	f.dirty, f.view.At = true, now
	f.news()
}
