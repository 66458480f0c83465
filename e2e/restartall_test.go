//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// allRestarting returns the status of the condition that all of the pod's containers are being restarted.
func allRestarting(p *corev1.Pod) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.AllContainersRestarting {
			return c.Status
		}
	}
	return ""
}

// attemptsOf are the containers of a pod, by name and attempt.
func attemptsOf(t *testing.T, s *stack.Stack, uid string) map[string]map[uint32]*runtimeapi.Container {
	t.Helper()
	list, err := s.CRI().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}}})
	must(t, err)
	out := map[string]map[uint32]*runtimeapi.Container{}
	for _, c := range list.Containers {
		if out[c.Metadata.Name] == nil {
			out[c.Metadata.Name] = map[uint32]*runtimeapi.Container{}
		}
		out[c.Metadata.Name][c.Metadata.Attempt] = c
	}
	return out
}

// A container ends by its rule RestartAllContainers (KEP-5532): all are restarted in the existing sandbox, init containers first,
// each once, also if the agent is killed in the meantime. The first to end writes a file that the second needs to stay.
func TestAContainerHasAllRestarted(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	w := &world{s: s, a: a, dir: t.TempDir()}
	awaitNode(t, c, n.Name, func(n *corev1.Node) error {
		if !strings.Contains(strings.Join(n.Status.DeclaredFeatures, " "), "RestartAllContainersOnContainerExits") {
			return fmt.Errorf("it declares %v", n.Status.DeclaredFeatures)
		}
		return nil
	})
	seen, err := c.Admin.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer seen.Stop()
	uid := string(create(t, c, ns, n.Name, withFolder(s, "p", w.dir, `
restartPolicy: Never
terminationGracePeriodSeconds: 60
initContainers:
- {name: init, image: HELLO, args: [append, /data/order, init], DATA}
- {name: sidecar, image: HELLO, restartPolicy: Always, args: [append, /data/order, sidecar, '--', sleep], DATA}
containers:
- {name: source, image: HELLO, args: [wait-file, /data/go, '--', check-file, /data/again, '--', sleep], DATA, restartPolicy: Never,
   restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}
- {name: other, image: HELLO, DATA, lifecycle: {preStop: {exec: {command: [/hello, append, /data/order, hook]}}},
   args: [write, /data/go, 'yes', '--', slow-term, '0', '1', '--', write, /data/again, 'yes']}`)).UID)
	before := map[string]*runtimeapi.Container{}
	for event := range seen.ResultChan() {
		if p, ok := event.Object.(*corev1.Pod); ok && allRestarting(p) == corev1.ConditionTrue {
			break
		}
	}
	for name, all := range attemptsOf(t, s, uid) {
		before[name] = all[0]
	}
	must(t, a.Kill9())
	must(t, a.Start())
	pod := awaitAPIPod(t, c, ns, "p", func(p *corev1.Pod) error {
		if got := allRestarting(p); got != corev1.ConditionFalse || statusOf(p, "source").RestartCount == 0 {
			return fmt.Errorf("restarting: %s, %+v", got, p.Status.ContainerStatuses)
		}
		return ready(p)
	})
	if len(before) != 4 {
		t.Fatalf("before there were %v", before)
	}
	after := attemptsOf(t, s, uid)
	for name, was := range before {
		is, st := after[name][1], statusOf(pod, name)
		if is == nil || was == nil || is.PodSandboxId != was.PodSandboxId || len(after[name]) != 2 {
			t.Fatalf("%s is %v, and was %v", name, after[name], was)
		}
		if !strings.HasSuffix(st.ContainerID, is.Id) {
			t.Errorf("%s is told as %s, and is %s", name, st.ContainerID, is.Id)
		}
		if end := st.LastTerminationState.Terminated; st.RestartCount != 1 || end == nil || !strings.HasSuffix(end.ContainerID, was.Id) {
			t.Errorf("%s is told as %+v", name, st)
		}
	}
	awaitFile(t, w.file("order"), "init\nsidecar\ninit\nsidecar\n") // and no pre-stop hook
	awaitEvents(t, c, ns, uid, map[string]int32{"Normal Killing spec.containers{other}: Container other: container source exited " +
		"with code 1, all will be restarted": 1})
	must(t, a.Kill9())
	must(t, a.Start())
	awaitNode(t, c, n.Name, nodeReady)
	settled(t, a)
	for name, all := range attemptsOf(t, s, uid) {
		if all[2] != nil {
			t.Errorf("the next agent has restarted %s", name)
		}
	}
}
