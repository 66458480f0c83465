package objects

import (
	"context"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

// services follows all Services that have an address, since the environment of containers tells of them. It is the store of its
// reflector.
type services struct {
	cluster *cluster

	mu    sync.Mutex
	known map[objectset.Key]*v1.Service // replaced with each change, as the board's readers share it
}

// followServices begins it, for the life of the cluster.
func (c *cluster) followServices() {
	s := &services{cluster: c}
	c.begin(func() {
		reflector := cache.NewReflectorWithOptions(s.listerWatcher(), &v1.Service{}, s, cache.ReflectorOptions{Name: "services"})
		reflector.RunWithContext(quiet(c.life))
	})
}

func (s *services) listerWatcher() cache.ListerWatcher {
	client := s.cluster.opts.Client
	addressed := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = addressed
			list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, o)
			return list, s.noted(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = addressed
			w, err := client.CoreV1().Services(metav1.NamespaceAll).Watch(ctx, o)
			return w, s.noted(ctx, err)
		},
	}, client)
}

// noted notes why Services cannot be read, for those who wait for them.
func (s *services) noted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && !apierrors.IsInvalid(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.cluster.opts.Board.FailServices(plain(err))
	}
	return err
}

// Add implements cache.ReflectorStore.
func (s *services) Add(object any) error {
	if o, ok := object.(*v1.Service); ok {
		s.change(func(all map[objectset.Key]*v1.Service) { all[keyOf(o)] = lean(o) })
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *services) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *services) Delete(object any) error {
	if o, ok := object.(*v1.Service); ok {
		s.change(func(all map[objectset.Key]*v1.Service) { delete(all, keyOf(o)) })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *services) Replace(objects []any, _ string) error {
	s.change(func(all map[objectset.Key]*v1.Service) {
		clear(all)
		for _, object := range objects {
			if o, ok := object.(*v1.Service); ok {
				all[keyOf(o)] = lean(o)
			}
		}
	})
	return nil
}

// Resync implements cache.ReflectorStore.
func (*services) Resync() error { return nil }

func (s *services) change(how func(map[objectset.Key]*v1.Service)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.known)
	if next == nil {
		next = map[objectset.Key]*v1.Service{}
	}
	how(next)
	s.known = next
	s.cluster.opts.Board.PutServices(next)
}

func keyOf(o *v1.Service) objectset.Key { return objectset.Key{Namespace: o.Namespace, Name: o.Name} }

// lean is what environments tell of a Service.
func lean(o *v1.Service) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Spec:       v1.ServiceSpec{ClusterIP: o.Spec.ClusterIP, Ports: o.Spec.Ports},
	}
}
