//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// vigil watches a Node, its lease and the pods of a namespace, and remembers when the Node or a pod was not ready or the lease
// had run out.
type vigil struct {
	c     *cluster.Cluster
	n     *cluster.Node
	stop  context.CancelFunc
	ended []chan []string
	seen  atomic.Int64 // when the lease was renewed last, in microseconds
}

// keepVigil begins with a Node, a lease and pods that are there, and ready.
func keepVigil(t *testing.T, c *cluster.Cluster, n *cluster.Node, ns string) *vigil {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	awaitLease(t, c, n, nil)
	v := &vigil{c: c, n: n, stop: cancel}
	nodes, leases := c.Admin.CoreV1().Nodes(), c.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	node, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
	must(t, err)
	since := ready1(node).LastTransitionTime
	v.followed(ctx, t, n.Name, node.ResourceVersion, nodes.Watch, func(e watch.Event) string {
		node, is := e.Object.(*corev1.Node)
		if !is || e.Type == watch.Deleted {
			return fmt.Sprintf("the Node was %s: %v", e.Type, e.Object)
		}
		if r := ready1(node); r.Status != corev1.ConditionTrue || !r.LastTransitionTime.Equal(&since) {
			return fmt.Sprintf("the Node was ready since %s, and was said to be: %+v", since, r)
		}
		return ""
	})
	held, err := leases.Get(ctx, n.Name, metav1.GetOptions{})
	must(t, err)
	renewed := held.Spec.RenewTime.Time
	v.followed(ctx, t, n.Name, held.ResourceVersion, leases.Watch, func(e watch.Event) string {
		now, is := e.Object.(*coordinationv1.Lease)
		if !is || e.Type == watch.Deleted {
			return fmt.Sprintf("the lease was %s: %v", e.Type, e.Object)
		}
		was := renewed
		renewed = now.Spec.RenewTime.Time
		v.seen.Store(renewed.UnixMicro())
		if lasts := time.Duration(*now.Spec.LeaseDurationSeconds) * time.Second; renewed.Sub(was) > lasts {
			return fmt.Sprintf("the lease of %s was renewed at %s, and before at %s", lasts, renewed, was)
		}
		return ""
	})
	pods := c.Admin.CoreV1().Pods(ns)
	list, err := pods.List(ctx, metav1.ListOptions{})
	must(t, err)
	was := map[string]string{}
	for i := range list.Items {
		was[list.Items[i].Name] = readySince(&list.Items[i])
	}
	v.followed(ctx, t, "", list.ResourceVersion, pods.Watch, func(e watch.Event) string {
		pod, is := e.Object.(*corev1.Pod)
		if !is || e.Type == watch.Deleted {
			return fmt.Sprintf("a pod was %s: %v", e.Type, e.Object)
		}
		if now := readySince(pod); now != was[pod.Name] || ready(pod) != nil {
			return fmt.Sprintf("pod %s was ready since %s, and was said to be: %+v", pod.Name, was[pod.Name], pod.Status)
		}
		return ""
	})
	return v
}

// followed calls look for whatever becomes of an object, of all where it has no name, until ctx ends, and keeps its complaints.
func (v *vigil) followed(ctx context.Context, t *testing.T, name, version string,
	begin func(context.Context, metav1.ListOptions) (watch.Interface, error), look func(watch.Event) string) {
	t.Helper()
	w, err := watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if name != "" {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
			}
			return begin(ctx, o)
		},
	})
	must(t, err)
	ended := make(chan []string, 1)
	go func() {
		var wrong []string
		for e := range w.ResultChan() {
			if text := look(e); text != "" {
				wrong = append(wrong, text)
			}
		}
		if ctx.Err() == nil {
			wrong = append(wrong, "the watch ended by itself: "+name)
		}
		ended <- wrong
	}()
	v.ended = append(v.ended, ended)
}

// end waits until the lease is renewed once more, and reports the violations.
func (v *vigil) end(t *testing.T) {
	t.Helper()
	last := awaitLease(t, v.c, v.n, nil)
	last = awaitLease(t, v.c, v.n, &last.renewed)
	await(t, func() error {
		if v.seen.Load() < last.renewed.UnixMicro() {
			return errors.New("the watch has not seen the last renewal of the lease")
		}
		return nil
	})
	awaitNode(t, v.c, v.n.Name, nodeReady)
	v.stop()
	for _, ended := range v.ended {
		for _, text := range <-ended {
			t.Error(text)
		}
	}
}
