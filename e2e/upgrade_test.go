//go:build e2e

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/parts/install"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// earlierAgent gives the binary of the earlier agent, which was built with the other parts. $PLAYLET_EARLIER names one to use
// instead.
func earlierAgent(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PLAYLET_EARLIER"); path != "" {
		return path
	}
	path, err := install.LocateEarlier()
	if errors.Is(err, install.ErrNoHistory) {
		t.Skip(err)
	}
	must(t, err)
	return path
}

// This agent replaces an earlier one: containers, volumes, probes, back-off and finished pods are unchanged.
func TestUpgradeFromAnEarlierAgent(t *testing.T) {
	binary := earlierAgent(t)
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Binary = binary
		a.Args = append(a.Args, "--admin-socket="+a.AdminSocket, "--log-links-dir="+a.LogLinksDir)
	})
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}}
	_, err := c.Admin.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{})
	must(t, err)
	for name, spec := range several {
		create(t, c, ns, n.Name, manifest(s, name, spec))
	}
	must(t, a.Write("static.yaml", manifest(s, "static", `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}}]`)))
	must(t, a.Write("over.yaml", manifest(s, "over", `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [exit, "0"]}]`)))
	create(t, c, ns, n.Name, manifest(s, "looping", `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [exit, "3"]}]`))
	awaitSeveral(t, c, ns)
	restartOnce(t, c, s, ns, "inits")
	waits := statusOf(awaitAPIPod(t, c, ns, "looping", func(p *corev1.Pod) error {
		if got := statusOf(p, "c"); got.RestartCount < 2 || got.State.Waiting == nil ||
			got.State.Waiting.Reason != "CrashLoopBackOff" {
			return fmt.Errorf("the container does not wait for its third restart: %+v", got)
		}
		return nil
	}), "c")
	awaitAPIPod(t, c, "default", "static-"+n.Name, ready)
	awaitAPIPod(t, c, "default", "over-"+n.Name, inPhase(corev1.PodSucceeded))

	before, statuses := containersByID(t, s), awaitSeveral(t, c, ns)
	maps.DeleteFunc(before,
		func(_ string, c *runtimeapi.Container) bool { return c.Labels["io.kubernetes.pod.name"] == "looping" })
	steady := watchSteadiness(t, c, n.Name)
	_, err = a.Term()
	must(t, err)
	a.Binary = "" // this one
	must(t, a.Start())
	settled(t, a)
	create(t, c, ns, n.Name, manifest(s, "new", sleeper))
	awaitAPIPod(t, c, ns, "new", ready)
	untouched(t, s, before)
	asItWas(t, c, ns, statuses)
	steady.end(t) // before the container that fails runs, and is ready, for a moment
	backsOffFurther(t, c, ns, waits)
	for _, name := range append(slices.Collect(maps.Keys(several)), "new", "looping") {
		remove(t, c, ns, name)
	}
	must(t, a.Remove("static.yaml"))
	must(t, a.Remove("over.yaml"))
	await(t, func() error {
		left, err := podsOf(t, c, n.Name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods are still there", len(left))
		}
		return err
	})
	must(t, s.AwaitNoLeftovers())
}

// backsOffFurther checks that the next restart comes at the earlier agent's time. A restarted back-off would restart the
// container at once.
func backsOffFurther(t *testing.T, c *cluster.Cluster, ns string, waits corev1.ContainerStatus) {
	t.Helper()
	last := waits.LastTerminationState.Terminated
	var next *corev1.ContainerStateTerminated
	awaitAPIPod(t, c, ns, "looping", func(p *corev1.Pod) error {
		got := statusOf(p, "c")
		if next = cmp.Or(got.State.Terminated, got.LastTerminationState.Terminated); next == nil ||
			next.ContainerID == last.ContainerID {
			return fmt.Errorf("the container has not run again: %+v", got)
		}
		return nil
	})
	if rest := next.StartedAt.Sub(last.FinishedAt.Time); rest < 15*time.Second {
		t.Errorf("the container was started again after %s, and its back-off was 20 s", rest)
	}
}
