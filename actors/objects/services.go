package objects

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

// followServices begins to follow all Services that have an address, since the environment of containers tells of them. It
// lasts for the life of the cluster.
func (c *cluster) followServices() {
	client := c.opts.Client
	addressed := fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String()
	follow(c, "Services", &every[objectset.Key, *v1.Service]{
		kind: &v1.Service{}, publish: c.opts.Board.PutServices, fail: c.opts.Board.FailServices,
		entry: func(object any) (objectset.Key, *v1.Service, bool) {
			o, ok := object.(*v1.Service)
			if !ok {
				return objectset.Key{}, nil, false
			}
			return keyOf(o), lean(o), true
		},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = addressed
			return client.CoreV1().Services(metav1.NamespaceAll).List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.FieldSelector = addressed
			return client.CoreV1().Services(metav1.NamespaceAll).Watch(ctx, o)
		},
	})
}

func keyOf(o *v1.Service) objectset.Key { return objectset.Key{Namespace: o.Namespace, Name: o.Name} }

// lean is what environments tell of a Service.
func lean(o *v1.Service) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Spec:       v1.ServiceSpec{ClusterIP: o.Spec.ClusterIP, Ports: o.Spec.Ports},
	}
}
