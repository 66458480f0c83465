package objects

import (
	"context"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
)

// requests are how objects are asked for.
type requests struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	noted func(context.Context, error) error // notes how each went, what is worth it, and gives the error back
}

// lists is the client of one kind of objects, L being its lists.
type lists[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}

// of asks for the objects that a selector of fields chooses; empty: for all.
func of[L runtime.Object](client lists[L], selector string, noted func(context.Context, error) error) requests {
	return requests{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return client.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = selector
			return client.Watch(ctx, o)
		},
		noted: noted,
	}
}

// reflect runs reflectors until ctx ends: one, and another whenever the API server was set back, as after the restoration of a
// backup.
func (r requests) reflect(
	ctx context.Context, client kubernetes.Interface, kind runtime.Object, to cache.ReflectorStore, o cache.ReflectorOptions,
) {
	r.noted = withoutExpected(r.noted)
	for ctx.Err() == nil {
		one, again := context.WithCancel(ctx)
		cache.NewReflectorWithOptions(r.listerWatcher(client, again), kind, to, o).RunWithContext(apiclient.Quiet(one))
		again()
	}
}

func (r requests) listerWatcher(client kubernetes.Interface, again func()) cache.ListerWatcher {
	var fresh atomic.Bool // a list was answered just now, from where the next watch begins
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.list(ctx, o)
			fresh.Store(err == nil)
			return list, r.noted(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			if !fresh.Swap(false) && o.ResourceVersion != "" && apiclient.WentBack(ctx, r.list, o.ResourceVersion) {
				again()
				return nil, apiclient.ErrWentBack
			}
			w, err := r.watch(ctx, o)
			return w, r.noted(ctx, err)
		},
	}, client)
}
