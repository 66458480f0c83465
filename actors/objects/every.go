package objects

import (
	"context"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

// followServices follows all Services that have an address, for the environment of containers, until the cluster ends.
func (c *cluster) followServices() {
	addressed := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String()
	e := &kindFollower[objectset.Key, *v1.Service]{
		cluster: c, failure: c.kind("Services"), publish: c.opts.Board.PutServices, fail: c.opts.Board.FailServices,
		entry: func(object any) (objectset.Key, *v1.Service, bool) {
			o, ok := object.(*v1.Service)
			if !ok {
				return objectset.Key{}, nil, false
			}
			lean := &v1.Service{ // the fields that environments use
				ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
				Spec:       v1.ServiceSpec{ClusterIP: o.Spec.ClusterIP, Ports: o.Spec.Ports},
			}
			return objectset.Key{Namespace: o.Namespace, Name: o.Name}, lean, true
		},
	}
	e.follow("Services", &v1.Service{}, of(c.opts.Client.CoreV1().Services(metav1.NamespaceAll), addressed, e.handleAnswer))
}

// followRuntimeClasses begins to follow all RuntimeClasses, which name the runtime's handlers for pods. It lasts for the life of
// the cluster. Overhead and scheduling are not read: the API server has written both into the pods.
func (c *cluster) followRuntimeClasses() {
	e := &kindFollower[string, string]{
		cluster: c, failure: c.kind("RuntimeClasses"),
		publish: c.opts.Board.PutRuntimeClasses, fail: c.opts.Board.FailRuntimeClasses,
		entry: func(object any) (name, handler string, ok bool) {
			if o, ok := object.(*nodev1.RuntimeClass); ok {
				return o.Name, o.Handler, true
			}
			return "", "", false
		},
	}
	e.follow("RuntimeClasses", &nodev1.RuntimeClass{}, of(c.opts.Client.NodeV1().RuntimeClasses(), "", e.handleAnswer))
}

// kindFollower follows all objects of one kind, and publishes an extract of each after each change.
type kindFollower[K comparable, V any] struct {
	cluster *cluster
	failure *failureState
	entry   func(object any) (K, V, bool) // the key and the extract of an object
	publish func(map[K]V)                 // the map is never written to again
	fail    func(error)                   // publishes the error for waiting pods

	mu      sync.Mutex
	objects map[K]V
}

// follow starts following until the cluster ends. name is the plural name of the kind for messages.
func (e *kindFollower[K, V]) follow(name string, kind runtime.Object, r requests) {
	put := func(all map[K]V, object any) {
		if k, v, ok := e.entry(object); ok {
			all[k] = v
		}
	}
	store := apiclient.Store{
		Put: func(object any) { e.change(func(all map[K]V) { put(all, object) }) },
		Drop: func(object any) {
			e.change(func(all map[K]V) {
				if k, _, ok := e.entry(object); ok {
					delete(all, k)
				}
			})
		},
		All: func(objects []any) {
			e.change(func(all map[K]V) {
				clear(all)
				for _, object := range objects {
					put(all, object)
				}
			})
		},
	}
	e.cluster.begin(func() {
		r.reflect(e.cluster.life, e.cluster.opts.Client, kind, store, cache.ReflectorOptions{Name: name})
	})
}

func (e *kindFollower[K, V]) handleAnswer(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		if why := e.cluster.answered(e.failure, err); why != nil {
			e.fail(why)
		}
	}
	return err
}

func (e *kindFollower[K, V]) change(how func(map[K]V)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := maps.Clone(e.objects)
	if next == nil {
		next = map[K]V{}
	}
	how(next)
	e.objects = next
	e.publish(next)
	e.cluster.read(e.failure)
}
