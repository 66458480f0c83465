package objects

import (
	"context"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// followRuntimeClasses begins to follow all RuntimeClasses, which name the runtime's handlers for pods. It lasts for the life of
// the cluster. Overhead and scheduling are not read: the API server has written both into the pods.
func (c *cluster) followRuntimeClasses() {
	classes := c.opts.Client.NodeV1().RuntimeClasses()
	follow(c, "RuntimeClasses", &every[string, string]{
		kind: &nodev1.RuntimeClass{}, publish: c.opts.Board.PutRuntimeClasses, fail: c.opts.Board.FailRuntimeClasses,
		entry: func(object any) (name, handler string, ok bool) {
			if o, ok := object.(*nodev1.RuntimeClass); ok {
				return o.Name, o.Handler, true
			}
			return "", "", false
		},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return classes.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			return classes.Watch(ctx, o)
		},
	})
}
