package objects

import (
	"context"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// every follows all objects of one kind, whatever pods name, and publishes what is kept of each after each change. It is the
// store of its reflector.
type every[K comparable, V any] struct {
	kind    runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	entry   func(object any) (K, V, bool) // what is kept of an object
	publish func(map[K]V)                 // the map is never written to again
	fail    func(error)                   // why they cannot be read, for those who wait for them

	cluster *cluster
	trouble *trouble

	mu    sync.Mutex
	known map[K]V
}

// follow begins it, for the life of the cluster. The name is what people call these objects.
func follow[K comparable, V any](c *cluster, name string, e *every[K, V]) {
	e.cluster, e.trouble = c, c.kind(name)
	c.begin(func() {
		requests{e.list, e.watch, e.noted}.reflect(c.life, c.opts.Client, e.kind, e, cache.ReflectorOptions{Name: name})
	})
}

func (e *every[K, V]) noted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		if why := e.cluster.kindAnswered(e.trouble, err); why != nil {
			e.fail(why)
		}
	}
	return err
}

// Add implements cache.ReflectorStore.
func (e *every[K, V]) Add(object any) error {
	if k, v, ok := e.entry(object); ok {
		e.change(func(all map[K]V) { all[k] = v })
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (e *every[K, V]) Update(object any) error { return e.Add(object) }

// Delete implements cache.ReflectorStore.
func (e *every[K, V]) Delete(object any) error {
	if k, _, ok := e.entry(object); ok {
		e.change(func(all map[K]V) { delete(all, k) })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (e *every[K, V]) Replace(objects []any, _ string) error {
	e.change(func(all map[K]V) {
		clear(all)
		for _, object := range objects {
			if k, v, ok := e.entry(object); ok {
				all[k] = v
			}
		}
	})
	return nil
}

// Resync implements cache.ReflectorStore.
func (*every[K, V]) Resync() error { return nil }

func (e *every[K, V]) change(how func(map[K]V)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := maps.Clone(e.known)
	if next == nil {
		next = map[K]V{}
	}
	how(next)
	e.known = next
	e.publish(next)
	e.cluster.read(e.trouble)
}
