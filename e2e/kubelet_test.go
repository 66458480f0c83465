//go:build e2e

package e2e

import (
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// The kubelet, as the basis of comparison, works here: it registers, and runs a pod of the cluster.
func TestTheKubeletRunsAPodOfTheCluster(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, _ := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a) })
	if v := awaitNode(t, c, n.Name, nodeReady).Status.NodeInfo.KubeletVersion; v != "v1.36.3" {
		t.Errorf("the kubelet says it is %s", v)
	}
	create(t, c, ns, n.Name, manifest(s, "one", "containers: [{name: main, image: HELLO}]\nterminationGracePeriodSeconds: 1"))
	p := awaitAPIPod(t, c, ns, "one", ready)
	if got, want := greeting(t, &stack.Pod{IP: p.Status.PodIP}), "Hello from one: /x\n"; got != want {
		t.Errorf("the pod answers %q, want %q", got, want)
	}
	remove(t, c, ns, "one")
	awaitNoAPIPod(t, c, ns, "one")
	must(t, s.AwaitNoLeftovers())
}
