//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The server has lost recent changes (410), or knows an earlier state, as after a backup was restored and the agent restarted:
// its current state decides, beside the current static pods; the mirror pods and the Node are corrected.
func TestTheServerForgets(t *testing.T) {
	c := cluster.Start(t)
	p := c.Proxy(t)
	n, ns := c.NodeBehind(t, p), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	r := &rollOut{c, s, a, ns, n.Name}
	r.writeStatic(t, "stale")
	for i := range 3 {
		r.create(t, named(i))
	}
	stays := awaitAgreement(t, c, s, n.Name, 4)[0]

	p.Refuse()
	r.remove(t, named(1))
	r.create(t, named(3))
	must(t, c.Forget(t.Context()))
	p.Admit()
	awaitNoAPIPod(t, c, ns, named(1))
	awaitAgreement(t, c, s, n.Name, 4)

	node := awaitNode(t, c, n.Name, nodeReady)
	p.Refuse()
	r.disown(t)
	must(t, c.Save())
	p.Admit()
	r.create(t, named(4))
	r.remove(t, named(2))
	must(t, a.Remove("stale.yaml"))
	r.writeStatic(t, "static")
	awaitNoAPIPod(t, c, ns, named(2))
	awaitNoAPIPod(t, c, ns, r.mirror("stale"))
	awaitAgreement(t, c, s, n.Name, 4)
	awaitNode(t, c, n.Name, nodeReady)
	p.Refuse()
	must(t, c.GoBack())
	must(t, a.Kill9())
	must(t, a.Start())
	back := metav1.NowMicro()
	p.Admit()
	// The pods 0 and 3, which were there all the time, 2, which is there again, and the static one; not 4, which never was.
	now := awaitAgreement(t, c, s, n.Name, 4)
	if now[0].Name != stays.Name || idsIn(&now[0])[0] != idsIn(&stays)[0] {
		t.Errorf("pod %s, which no change concerned, has another container: %+v", stays.Name, now[0].Status)
	}
	for i, name := range []string{named(0), named(2), named(3), r.mirror("static")} {
		if now[i].Name != name {
			t.Errorf("there is pod %s, want %s", now[i].Name, name)
		}
	}
	awaitNode(t, c, n.Name, saidAs(node))
	awaitLease(t, c, n, &back)
	must(t, a.Remove("static.yaml"))
	for _, i := range []int{0, 2, 3} {
		r.remove(t, named(i))
	}
	r.gone(t)
}

// disown changes the Node as if another agent had written it: it lacks a label and an address, and is reported absent.
func (r *rollOut) disown(t *testing.T) {
	t.Helper()
	for sub, patch := range map[string]string{
		"":       `{"metadata": {"labels": {"kubernetes.io/hostname": null}}}`,
		"status": `{"status": {"addresses": [{"type": "Hostname", "address": "elsewhere"}], "conditions": [{"type": "Ready", "status": "Unknown"}]}}`,
	} {
		_, err := r.c.Admin.CoreV1().Nodes().Patch(t.Context(), r.node, types.StrategicMergePatchType, []byte(patch),
			metav1.PatchOptions{}, sub)
		must(t, err)
	}
}

// saidAs is for awaitNode: the agent reports the same Node as before.
func saidAs(was *corev1.Node) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		if !maps.Equal(n.Labels, was.Labels) || !reflect.DeepEqual(n.Status.Addresses, was.Status.Addresses) {
			return fmt.Errorf("the Node is %v, %v; it was %v, %v", n.Labels, n.Status.Addresses, was.Labels, was.Status.Addresses)
		}
		return nodeReady(n)
	}
}
