package objects

import (
	"context"

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
	noted func(context.Context, error) error // records the outcome of a request, and returns its error
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

// reflect runs a reflector until ctx ends.
func (r requests) reflect(
	ctx context.Context, client kubernetes.Interface, kind runtime.Object, to cache.ReflectorStore, o cache.ReflectorOptions,
) {
	noted := withoutExpected(r.noted)
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.list(ctx, o)
			return list, noted(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := r.watch(ctx, o)
			return w, noted(ctx, err)
		},
	}, client), kind, to, o).RunWithContext(apiclient.Quiet(ctx))
}
