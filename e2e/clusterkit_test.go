//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// inCluster starts a stack with an agent as a node of a cluster, and waits until the API server has it as ready. With
// PLAYLET_E2E_SUBJECT=kubelet the agent is the real kubelet, to verify a test's expectations.
func inCluster(t *testing.T, c *cluster.Cluster, n *cluster.Node, change func(*stack.Agent)) (*stack.Stack, *stack.Agent) {
	t.Helper()
	s := stack.Start(t, stack.Options{})
	return s, joinCluster(t, c, n, s, change)
}

// joinCluster is inCluster over a stack that is there.
func joinCluster(t *testing.T, c *cluster.Cluster, n *cluster.Node, s *stack.Stack, change func(*stack.Agent)) *stack.Agent {
	t.Helper()
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Args = n.Args()
		if os.Getenv("PLAYLET_E2E_SUBJECT") == "kubelet" {
			asKubelet(t, a)
		}
		if change != nil {
			change(a)
		}
	})
	awaitNode(t, c, n.Name, nodeReady)
	return a
}

// asKubelet has the kubelet take an agent's place, from its next start on.
func asKubelet(t *testing.T, a *stack.Agent) {
	t.Helper()
	binary, err := stack.Kubelet()
	must(t, err)
	a.Binary = binary
}

// create makes a pod of a manifest in the cluster, bound to a node, as a scheduler would have.
func create(t *testing.T, c *cluster.Cluster, ns, node, manifest string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	must(t, yaml.UnmarshalStrict([]byte(manifest), pod))
	pod.Spec.NodeName = node
	made, err := c.Admin.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	return made
}

// remove deletes a pod from the cluster, with the pod's own grace period.
func remove(t *testing.T, c *cluster.Cluster, ns, name string) {
	t.Helper()
	must(t, c.Admin.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// awaitAPIPod waits until look accepts the API server's pod, and returns it.
func awaitAPIPod(t *testing.T, c *cluster.Cluster, ns, name string, look func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await(t, func() (err error) {
		if pod, err = c.Admin.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return look(pod)
	})
	return pod
}

// awaitNoAPIPod waits until the API server has no such pod.
func awaitNoAPIPod(t *testing.T, c *cluster.Cluster, ns, name string) {
	t.Helper()
	await(t, func() error {
		pod, err := c.Admin.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pod %s is still there: %v, %+v", name, err, pod.Status)
	})
}

// awaitNode waits until look accepts the API server's Node, and returns it.
func awaitNode(t *testing.T, c *cluster.Cluster, name string, look func(*corev1.Node) error) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	await(t, func() (err error) {
		if node, err = c.Admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return look(node)
	})
	return node
}

// nodeReady is for awaitNode.
func nodeReady(n *corev1.Node) error {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not ready: %+v", n.Name, n.Status.Conditions)
}
