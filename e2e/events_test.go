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

// listEvents returns the events of an object by UID, as kubectl describe does.
func listEvents(t *testing.T, c *cluster.Cluster, ns, uid string) []corev1.Event {
	t.Helper()
	list, err := c.Admin.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid})
	must(t, err)
	return list.Items
}

// eventsOf counts the events of an object by "Type Reason path: message".
func eventsOf(t *testing.T, c *cluster.Cluster, ns, uid string) map[string]int32 {
	t.Helper()
	out := map[string]int32{}
	for _, e := range listEvents(t, c, ns, uid) {
		if e.Source.Component != "kubelet" || e.Count < 1 || e.FirstTimestamp.IsZero() ||
			e.LastTimestamp.Before(&e.FirstTimestamp) {
			t.Errorf("an event is %+v", e)
		}
		out[e.Type+" "+e.Reason+" "+e.InvolvedObject.FieldPath+": "+e.Message] += e.Count
	}
	return out
}

// awaitEvents waits until an object has at least the given number of events with each of these prefixes.
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

// news are the expected events of TestTheEventsOfANode's pods, by name. UID and NS stand for the pod's.
var news = map[string]struct {
	spec string
	want map[string]int32
}{
	"crash": {`containers: [{name: c, image: HELLO, args: [exit, "1"]}]`, map[string]int32{
		"Normal Started" + at: 2, "Warning BackOff" + at + "Back-off restarting failed container c in pod crash_NS(UID)": 1,
	}},
	"pull": {`imagePullSecrets: [{name: none}]
containers: [{name: c, image: "127.0.0.1:1/none:1"}]`, map[string]int32{
		"Normal Pulling" + at + `Pulling image "127.0.0.1:1/none:1"`: 1, "Warning Failed" + at + `Failed to pull image "127.0.0.1:1/none:1": `: 1,
		"Normal BackOff" + at + `Back-off pulling image "127.0.0.1:1/none:1"`: 1, "Warning Failed" + at + "Error: ": 2,
		"Warning FailedToRetrieveImagePullSecret : Unable to retrieve some image pull secrets (none); ": 1,
	}},
	"sick": {`containers:
- {name: c, image: HELLO, args: [sleep], livenessProbe: {periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1, exec: {command: [/hello, exit, "3"]}}}`, map[string]int32{
		"Warning Unhealthy" + at + "Liveness probe failed: ": 2, "Normal Killing" + at +
			"Container c failed liveness probe, will be restarted": 1,
		"Normal Started" + at: 2,
	}},
	"hook": {`terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [sleep], lifecycle: {postStart: {exec: {command: [/hello, exit, "1"]}}}}]`, map[string]int32{
		"Warning FailedPostStartHook" + at: 1, "Normal Killing" + at + "FailedPostStartHook": 1,
	}},
	"late": {`activeDeadlineSeconds: 1
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [sleep]}]`, map[string]int32{
		"Normal DeadlineExceeded : Pod was active on the node longer than the specified deadline": 1,
	}},
	"mount": {`containers: [{name: c, image: HELLO, volumeMounts: [{name: v, mountPath: /v}]}]
volumes: [{name: v, secret: {secretName: none}}]`, map[string]int32{
		`Warning FailedMount : MountVolume.SetUp failed for volume "v" : `: 1,
	}},
}

// at is where an event is that is about a pod's container c.
const at = " spec.containers{c}: "

// The node, without administrator's rights, writes the events of successes and failures, where kubectl finds them. A restart of
// the agent causes no events of running pods.
func TestTheEventsOfANode(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, quick)
	pod := func(name, spec string) string { return string(create(t, c, ns, n.Name, manifest(s, name, spec)).UID) }
	well := pod("well", `containers: [{name: c, image: HELLO, args: [sleep], lifecycle: {preStop: {exec: {command: [/hello, exit, "1"]}}}}]
terminationGracePeriodSeconds: 1`)
	many := pod("many", "containers:"+strings.Join(imageless(20), ""))
	uids := map[string]string{}
	for name, one := range news {
		uids[name] = pod(name, one.spec)
	}
	lost := pod("lost", "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep]}]")
	awaitEvents(t, c, ns, lost, map[string]int32{"Normal Started" + at: 1})
	must(t, s.KillSandboxProcess(t.Context(), lost))
	awaitEvents(t, c, ns, lost,
		map[string]int32{"Normal SandboxChanged : Pod sandbox changed, it will be killed and re-created.": 1, "Normal Started" +
			at: 2})
	awaitEvents(t, c, ns, well, map[string]int32{"Normal Pulled" + at: 1, "Normal Created" + at: 1, "Normal Started" + at: 1})
	for name, one := range news {
		want := map[string]int32{}
		for text, least := range one.want {
			want[strings.NewReplacer("NS", ns, "UID", uids[name]).Replace(text)] = least
		}
		awaitEvents(t, c, ns, uids[name], want)
		combined(t, c, ns, uids[name])
	}
	limited(t, c, n.Name, ns, many, func() string { return pod("held", heldSpec) })
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, map[string]int32{"Normal Starting : Starting kubelet.": 1})
	for name := range news { // leftovers of an interrupted start are tested elsewhere
		remove(t, c, ns, name)
	}
	for name := range news {
		awaitNoAPIPod(t, c, ns, name)
	}

	must(t, a.Kill9())
	must(t, a.Start())
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, map[string]int32{"Normal Starting : Starting kubelet.": 2})
	remove(t, c, ns, "well")
	awaitEvents(t, c, ns, well, map[string]int32{"Normal Killing" + at + "Stopping container c": 1, "Warning FailedPreStopHook" +
		at: 1})
	for text, count := range eventsOf(t, c, ns, well) {
		if count != 1 {
			t.Errorf("%s: %d times", text, count)
		}
	}
}

// combined expects several Events of an object to be combined in one.
func combined(t *testing.T, c *cluster.Cluster, ns, uid string) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range listEvents(t, c, ns, uid) {
		text := e.Reason + e.InvolvedObject.FieldPath + e.Message
		if seen[text] {
			t.Errorf("there are two Events %s of pod %s: %s", e.Reason, e.InvolvedObject.Name, e.Message)
		}
		seen[text] = true
	}
}

// imageless returns so many containers with two events each, all different.
func imageless(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("\n- {name: c%d, image: '127.0.0.1:1/never:%d', imagePullPolicy: Never}", i, i))
	}
	return out
}

// heldSpec has a field that will never be supported.
const heldSpec = `containers: [{name: c, image: HELLO}]
volumes: [{name: v, glusterfs: {endpoints: none, path: none}}]`

// limited sees that too many events about one pod are combined, and then left out.
func limited(t *testing.T, c *cluster.Cluster, node, ns, many string, held func() string) {
	t.Helper()
	const most = 25 // at once about one object, as with the kubelet; one more each five minutes
	awaitAPIPod(t, c, ns, "many", func(p *corev1.Pod) error {
		for _, one := range p.Status.ContainerStatuses {
			if w := one.State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
				return fmt.Errorf("container %s: %+v", one.Name, one.State)
			}
		}
		return nil
	})
	// Its consequences were reported after all of them.
	awaitEvents(t, c, ns, held(),
		map[string]int32{"Warning Unsupported : the pod waits, since it sets what Playlet does not support yet: spec.volumes[0].glusterfs": 1})
	sum, similar := int32(0), int32(0)
	for text, count := range eventsOf(t, c, ns, many) {
		sum += count
		if strings.Contains(text, "(combined from similar events): ") {
			similar += count
		}
	}
	if sum < most || sum > most+5 || similar < 2 {
		t.Errorf("of some 40 events %d are told, %d of them combined: %v", sum, similar, eventsOf(t, c, ns, many))
	}
}
