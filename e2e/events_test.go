//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eventsOf are those of an object by UID, as kubectl describe asks for them: "Reason path: message".
func eventsOf(t *testing.T, c *cluster.Cluster, ns, uid string) map[string]int32 {
	t.Helper()
	list, err := c.Admin.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid})
	must(t, err)
	out := map[string]int32{}
	for _, e := range list.Items {
		if e.Source.Component != "kubelet" || e.Count < 1 || e.FirstTimestamp.IsZero() || e.LastTimestamp.Before(&e.FirstTimestamp) {
			t.Errorf("an event is %+v", e)
		}
		out[e.Type+" "+e.Reason+" "+e.InvolvedObject.FieldPath+": "+e.Message] += e.Count
	}
	return out
}

// awaitEvents waits until there is an event of an object for each of these beginnings, at least as often as it says.
func awaitEvents(t *testing.T, c *cluster.Cluster, ns, uid string, want map[string]int32) {
	t.Helper()
	await(t, func() error {
		got := eventsOf(t, c, ns, uid)
		for begin, least := range want {
			n := int32(0)
			for text, count := range got {
				if strings.HasPrefix(text, begin) {
					n += count
				}
			}
			if n < least {
				return fmt.Errorf("%d of %d events %q: %v", n, least, begin, got)
			}
		}
		return nil
	})
}

// The node, which is no administrator, writes the events of what goes well and of what does not, where kubectl looks for them.
// A restart of the agent is no news of what runs.
func TestTheEventsOfANode(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	pod := func(name, spec string) string { return string(create(t, c, ns, n.Name, manifest(s, name, spec)).UID) }
	well := pod("well", `containers: [{name: c, image: HELLO, args: [sleep]}]
terminationGracePeriodSeconds: 1`)
	crash := pod("crash", `containers: [{name: c, image: HELLO, args: [exit, "1"]}]`)
	pull := pod("pull", `containers: [{name: c, image: "127.0.0.1:1/none:1"}]`)
	sick := pod("sick", `containers:
- {name: c, image: HELLO, args: [sleep], livenessProbe: {periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1, exec: {command: [/hello, exit, "3"]}}}`)
	const at = " spec.containers{c}: "
	life := map[string]int32{"Normal Pulled" + at: 1, "Normal Created" + at: 1, "Normal Started" + at: 1}
	awaitEvents(t, c, ns, well, life)
	awaitEvents(t, c, ns, crash, map[string]int32{"Normal Started" + at: 2, "Warning BackOff" + at + "Back-off restarting failed container c in pod crash_" + ns + "(" + crash + ")": 1})
	awaitEvents(t, c, ns, pull, map[string]int32{
		"Normal Pulling" + at + `Pulling image "127.0.0.1:1/none:1"`: 1, "Warning Failed" + at + `Failed to pull image "127.0.0.1:1/none:1": `: 1,
		"Normal BackOff" + at + `Back-off pulling image "127.0.0.1:1/none:1"`: 1, "Warning Failed" + at + "Error: ": 2,
	})
	awaitEvents(t, c, ns, sick, map[string]int32{
		"Warning Unhealthy" + at + "Liveness probe failed: ": 2, "Normal Killing" + at + "Container c failed liveness probe, will be restarted": 1,
		"Normal Started" + at: 2,
	})
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, map[string]int32{"Normal Starting : Starting kubelet.": 1})

	must(t, a.Kill9())
	must(t, a.Start())
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, map[string]int32{"Normal Starting : Starting kubelet.": 2})
	remove(t, c, ns, "well")
	awaitEvents(t, c, ns, well, map[string]int32{"Normal Killing" + at + "Stopping container c": 1})
	for text, count := range eventsOf(t, c, ns, well) {
		if count != 1 {
			t.Errorf("%s: %d times", text, count)
		}
	}
}
