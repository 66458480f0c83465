//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The administrator's extended resources are allocatable, are counted, and survive a restart of the agent; those unknown to the
// node are counted by the cluster.
func TestExtendedResources(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	_, err := c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
		[]byte(`{"status": {"capacity": {"example.com/dongle": "2"}}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	two := func(n *corev1.Node) error {
		for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			if q := list["example.com/dongle"]; q.Value() != 2 {
				return fmt.Errorf("%v are there, and allocatable are %v", n.Status.Capacity, n.Status.Allocatable)
			}
		}
		return nil
	}
	awaitNode(t, c, n.Name, two)
	asks := func(resource string) string {
		return "containers: [{name: c, image: HELLO, args: [sleep, '100000'], resources: {limits: {" + resource + "}}}]"
	}
	create(t, c, ns, n.Name, manifest(s, "has", asks("example.com/dongle: 2")))
	create(t, c, ns, n.Name, manifest(s, "elsewhere", asks("example.com/licence: 7")))
	was := awaitAPIPod(t, c, ns, "has", ready)
	awaitAPIPod(t, c, ns, "elsewhere", ready)
	refused(t, c, s, n, ns, "lacks", asks("example.com/dongle: 1"), "OutOfexample.com/dongle",
		"requested: 1, used: 2, capacity: 2")

	must(t, a.Kill9())
	must(t, a.Start())
	refused(t, c, s, n, ns, "lacks-still", asks("example.com/dongle: 1"), "OutOfexample.com/dongle",
		"requested: 1, used: 2, capacity: 2")
	now, err := c.Admin.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	must(t, err)
	must(t, two(now))
	awaitHere(t, a, "has", readyHere) // one that is held is none
	is, err := c.Admin.CoreV1().Pods(ns).Get(t.Context(), "has", metav1.GetOptions{})
	must(t, err)
	must(t, ready(is))
	if was, is := was.Status.ContainerStatuses[0], is.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID ||
		is.RestartCount != 0 {
		t.Errorf("its container was %+v and is %+v", was, is)
	}
}
