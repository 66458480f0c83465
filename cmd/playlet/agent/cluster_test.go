package agent

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/sources/apiserver"
	"github.com/playlet-dev/playlet/actors/sources/apiserver/apiservertest"
	"github.com/playlet-dev/playlet/cri/sim"
)

// clusterRig is the whole agent over a simulated runtime, as a node of a cluster that is in memory: client-go's fake
// clientset, which a test may give reactors for faults. It has no admission, no garbage collection, and no field selectors;
// nor managed fields, which cost a third of a chaos day's time and which nothing here reads.
type clusterRig struct {
	*rig
	api *fake.Clientset
}

// newClusterRig is newRig, with an API server.
func newClusterRig(t testing.TB, opts sim.Options, flags ...string) *clusterRig {
	t.Helper()
	r := &clusterRig{rig: newRig(t, opts, flags...), api: fake.NewSimpleClientset()}
	r.api.PrependReactor("create", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		if create, ok := a.(ktesting.CreateAction); ok {
			if object, err := meta.Accessor(create.GetObject()); err == nil && object.GetUID() == "" {
				object.SetUID(uuid.NewUUID()) // as an API server does
			}
		}
		return false, nil, nil
	})
	r.clients = &apiserver.Clients{Main: r.api, Heartbeat: r.api, Events: r.api, Server: "https://cluster.test:6443"}
	r.flags = append(r.flags, "--kubeconfig="+unreachable(t),
		"--cluster-dns=192.0.2.53") // without one, each pod has an event about it
	return r
}

// watched waits until the agent, after its list of pods, also watches them. A real API server sends a watch the changes since
// the list, the fake one does not.
func (r *clusterRig) watched() {
	r.t.Helper()
	if r.agent == nil {
		return
	}
	r.eventually("what was listed is watched", func() bool {
		verb := "watch"
		for _, a := range r.api.Actions() {
			if v := a.GetVerb(); a.GetResource().Resource == "pods" && (v == "list" || v == "watch") {
				verb = v
			}
		}
		return verb == "watch"
	})
}

// binds has a pod, which a manifest describes, assigned to this node, as the scheduler would: defaulted, with a UID.
func (r *clusterRig) binds(manifest string) *v1.Pod {
	r.t.Helper()
	pod, err := apiservertest.Bound(manifest, "node")
	if err != nil {
		r.t.Fatal(err)
	}
	r.watched()
	out, err := r.api.CoreV1().Pods(pod.Namespace).Create(r.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// pod is the pod as the API server has it; nil when it has none.
func (r *clusterRig) pod(name string) *v1.Pod {
	r.t.Helper()
	pod, err := r.api.CoreV1().Pods(metav1.NamespaceDefault).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return pod
}

// edits changes a pod's object.
func (r *clusterRig) edits(name string, how func(*v1.Pod)) {
	r.t.Helper()
	for {
		pod := r.pod(name)
		if pod == nil {
			r.t.Fatalf("there is no pod %s to edit", name)
		}
		how(pod)
		pod.Generation++
		r.watched()
		_, err := r.api.CoreV1().Pods(pod.Namespace).Update(context.Background(), pod, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			r.t.Fatal(err)
		}
		return
	}
}

// deletes requests the deletion of a pod, as kubectl delete does. The grace period, in seconds, starts when the node receives
// the request.
func (r *clusterRig) deletes(name string, grace int64) {
	r.t.Helper()
	r.edits(name, func(p *v1.Pod) {
		at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	})
}

// forgets removes a pod's object at once, as the deletion with a grace period of 0 does.
func (r *clusterRig) forgets(name string) {
	r.t.Helper()
	r.watched()
	if err := r.api.CoreV1().Pods(metav1.NamespaceDefault).Delete(context.Background(), name,
		metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// lookEach is how many milliseconds lie between two looks of eventually: a look at all objects is dear with the race detector.
const lookEach = 20

// eventually waits for a condition that no call to the runtime shows.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline, progress := time.Now().Add(waitLimit), ""
	for n := 0; n%lookEach != 0 || !ok(); n++ {
		if now := time.Now(); now.After(deadline) {
			if r.progress != nil && r.progress() != progress {
				deadline, progress = now.Add(waitLimit), r.progress()
				continue
			}
			if r.failing != nil {
				r.t.Log(r.failing())
			}
			r.t.Fatalf("it did not come to it: %s", what)
		}
		if r.meanwhile != nil {
			r.meanwhile()
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitsNode waits until the Node is there and ready, and has its lease.
func (r *clusterRig) awaitsNode() {
	r.t.Helper()
	r.eventually("the Node is ready and has a lease", func() bool {
		node, err := r.api.CoreV1().Nodes().Get(context.Background(), "node", metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				_, err := r.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(context.Background(), "node",
					metav1.GetOptions{})
				return err == nil
			}
		}
		return false
	})
}
