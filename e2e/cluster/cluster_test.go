//go:build e2e

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The tests of this package have no agent: they verify the foundation of the others.

func TestMain(m *testing.M) {
	prepare := func(string) error { return install.EnsureCluster(context.Background(), os.Stderr) }
	os.Exit(isolate.Run(prepare, m.Run))
}

// await waits until look, called again and again, has nothing to complain about.
func await(t *testing.T, look func() error) {
	t.Helper()
	var last error
	for begun := time.Now(); time.Since(begun) < waitLimit; time.Sleep(100 * time.Millisecond) {
		if last = look(); last == nil {
			return
		}
	}
	t.Fatalf("it stays so: %v", last)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that an error is the server's rejection, and no other.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want Forbidden", what, err)
	}
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// A node's rights are those granted by RBAC, the Node authorizer and NodeRestriction together.
func TestANodeIsNoAdministrator(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	one, other, ns := c.Node(t), c.Node(t), c.Namespace(t)
	pods, nodes := one.Client.CoreV1().Pods(ns), one.Client.CoreV1().Nodes()

	if server, err := one.Client.Discovery().ServerVersion(); err != nil || server.GitVersion != "v1.36.3" {
		t.Errorf("the server is %v, %v", server, err)
	}
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: one.Name}}
	if made, err := nodes.Create(ctx, own, metav1.CreateOptions{}); err != nil || len(made.Spec.Taints) != 1 {
		t.Errorf("its own Node, with a taint from the server: %v, %v", made, err)
	}
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other.Name}}, metav1.CreateOptions{})
	refused(t, "another's Node", err)
	label := []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}}`)
	_, err = nodes.Patch(ctx, one.Name, types.MergePatchType, label, metav1.PatchOptions{})
	refused(t, "a label that only administrators set", err)

	_, err = c.Admin.CoreV1().Pods(ns).Create(ctx, podOn(one.Name, "mine"), metav1.CreateOptions{})
	must(t, err)
	_, err = c.Admin.CoreV1().Pods(ns).Create(ctx, podOn(other.Name, "theirs"), metav1.CreateOptions{})
	must(t, err)
	status := []byte(`{"status":{"phase":"Running"}}`)
	_, err = pods.Patch(ctx, "mine", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	must(t, err)
	_, err = pods.Patch(ctx, "theirs", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	refused(t, "the status of another node's pod", err)
	_, err = pods.Create(ctx, podOn(one.Name, "plain"), metav1.CreateOptions{})
	refused(t, "a pod that is no mirror", err)
	_, err = one.Client.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	refused(t, "all secrets", err)

	await(t, func() error {
		said, err := c.Requests(one.Name)
		if err != nil {
			return err
		}
		for _, r := range said {
			if r.Verb == "patch" && r.Object.Name == "theirs" && r.Object.Subresource == "status" &&
				r.Answer.Code == http.StatusForbidden {
				return nil
			}
		}
		return fmt.Errorf("the audit log does not have the refused patch: %+v", said)
	})
}

func TestTheKubeconfigIsTheNodes(t *testing.T) {
	c := Shared(t)
	n := c.Node(t)
	config, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig)
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}},
		metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.KillAPIServer(); err == nil {
		t.Error("a test may kill the server of all tests")
	}
}

func TestTheServerComesAndGoes(t *testing.T) {
	c := Start(t)
	ctx := t.Context()
	n, ns := c.Node(t), c.Namespace(t)
	pods := c.Admin.CoreV1().Pods(ns)
	first, err := pods.Create(ctx, podOn(n.Name, "one"), metav1.CreateOptions{})
	must(t, err)
	watch, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	must(t, err)
	must(t, c.Save())
	for range watch.ResultChan() { // it ends with the server
	}

	_, err = pods.Create(ctx, podOn(n.Name, "two"), metav1.CreateOptions{})
	must(t, err)
	must(t, c.RestartAPIServer())
	both, err := pods.List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(both.Items) != 2 {
		t.Errorf("after a restart there are %d pods, want 2", len(both.Items))
	}

	must(t, c.Forget(ctx))
	expired(t, c, ns, first.ResourceVersion)

	must(t, c.GoBack())
	back, err := pods.List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(back.Items) != 1 || back.Items[0].UID != first.UID {
		t.Errorf("after going back there are %v, want the first one", back.Items)
	}
	if len(back.ResourceVersion) > len(both.ResourceVersion) || back.ResourceVersion >= both.ResourceVersion {
		t.Errorf("resource version %s after going back, %s before", back.ResourceVersion, both.ResourceVersion)
	}
}

// expired checks that a watch from that resource version is answered with 410.
func expired(t *testing.T, c *Cluster, ns, version string) {
	t.Helper()
	watch, err := c.Admin.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if apierrors.IsResourceExpired(err) {
		return
	}
	must(t, err)
	defer watch.Stop()
	e := <-watch.ResultChan()
	if status, ok := e.Object.(*metav1.Status); !ok || status.Code != http.StatusGone {
		t.Errorf("a watch from %s says %v %v, want 410", version, e.Type, e.Object)
	}
}
