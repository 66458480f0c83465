//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// several are pods of many kinds, by name, which all continue except once, which succeeds.
var several = map[string]string{
	"plain": `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [sleep]}]`,
	"probed": `
terminationGracePeriodSeconds: 1
containers:
- {name: c, image: HELLO, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}, livenessProbe: {tcpSocket: {port: 8080}}}
- {name: d, image: HELLO, args: [sleep], startupProbe: {exec: {command: [/hello, exit, "0"]}, periodSeconds: 1}}`,
	"inits": `
terminationGracePeriodSeconds: 1
initContainers:
- {name: first, image: HELLO, args: [exit, "0"]}
- {name: beside, image: HELLO, args: [sleep], restartPolicy: Always}
containers: [{name: c, image: HELLO, args: [sleep]}]`,
	"volumes": `
terminationGracePeriodSeconds: 1
containers:
- name: c
  image: HELLO
  args: [sleep]
  env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
  volumeMounts: [{name: scratch, mountPath: /scratch}, {name: settings, mountPath: /settings}]
volumes: [{name: scratch, emptyDir: {}}, {name: settings, configMap: {name: settings}}]`,
	"resources": `
terminationGracePeriodSeconds: 1
hostNetwork: true
containers: [{name: c, image: HELLO, args: [sleep], resources: {requests: {cpu: 10m}, limits: {memory: 64Mi}}}]`,
	"once": `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [exit, "0"]}]`,
}

// A node that the kubelet ran is taken over with all that runs on it, and given back: neither side starts a container again.
func TestTakenOverAndGivenBack(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a) })
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}}
	_, err := c.Admin.CoreV1().ConfigMaps(ns).Create(t.Context(), settings, metav1.CreateOptions{})
	must(t, err)
	for name, spec := range several {
		create(t, c, ns, n.Name, manifest(s, name, spec))
	}
	awaitSeveral(t, c, ns)
	restartOnce(t, c, s, ns, "inits")

	before, statuses := containersByID(t, s), awaitSeveral(t, c, ns)
	steady := watchSteadiness(t, c, n.Name)
	_, err = a.Term()
	must(t, err)
	a.Binary = "" // ours
	must(t, a.Start())
	settled(t, a)
	create(t, c, ns, n.Name, manifest(s, "ours", sleeper))
	awaitAPIPod(t, c, ns, "ours", ready)
	untouched(t, s, before)
	asItWas(t, c, ns, statuses)
	remove(t, c, ns, "plain") // created by the kubelet, ended by the agent
	awaitNoAPIPod(t, c, ns, "plain")
	steady.end(t)

	before = containersByID(t, s)
	_, err = a.Term()
	must(t, err)
	asKubelet(t, a)
	must(t, a.Start())
	settled(t, a)
	create(t, c, ns, n.Name, manifest(s, "kubelets", sleeper))
	awaitAPIPod(t, c, ns, "kubelets", ready)
	untouched(t, s, before)
	for _, name := range append(slices.Collect(maps.Keys(several)), "ours", "kubelets") {
		if name != "plain" {
			remove(t, c, ns, name)
		}
	}
	await(t, func() error {
		left, err := podsOf(t, c, n.Name)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods are still there", len(left))
		}
		return err
	})
	must(t, s.AwaitNoLeftovers())
}

// awaitSeveral waits until all of several are as they stay, and gives them by name.
func awaitSeveral(t *testing.T, c *cluster.Cluster, ns string) map[string]*corev1.Pod {
	t.Helper()
	all := map[string]*corev1.Pod{}
	for name := range several {
		look := ready
		if name == "once" {
			look = inPhase(corev1.PodSucceeded)
		}
		all[name] = awaitAPIPod(t, c, ns, name, look)
	}
	return all
}

// restartOnce kills the container c of a pod and waits until the API server has its next one.
func restartOnce(t *testing.T, c *cluster.Cluster, s *stack.Stack, ns, name string) {
	t.Helper()
	id := strings.TrimPrefix(statusOf(awaitAPIPod(t, c, ns, name, ready), "c").ContainerID, "containerd://")
	pid, err := s.ContainerPID(t.Context(), id)
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
		if got := statusOf(p, "c"); got.RestartCount != 1 {
			return fmt.Errorf("container c of pod %s was not restarted: %+v", name, got)
		}
		return ready(p)
	})
}

func containersByID(t *testing.T, s *stack.Stack) map[string]*runtimeapi.Container {
	t.Helper()
	all, err := s.Containers(t.Context())
	must(t, err)
	byID := map[string]*runtimeapi.Container{}
	for _, c := range all {
		byID[c.Id] = c
	}
	return byID
}

// untouched compares the containers with those that there were: all that ran run, and their pods have no new ones.
func untouched(t *testing.T, s *stack.Stack, before map[string]*runtimeapi.Container) {
	t.Helper()
	pods := map[string]bool{}
	now := containersByID(t, s)
	for id, c := range before {
		pods[c.Labels[stack.UIDLabel]] = true
		running := runtimeapi.ContainerState_CONTAINER_RUNNING
		if c.State == running && (now[id] == nil || now[id].State != running) {
			t.Errorf("container %s of pod %s does not run any more", c.Metadata.Name, c.Labels["io.kubernetes.pod.name"])
		}
	}
	for id, c := range now {
		if before[id] == nil && pods[c.Labels[stack.UIDLabel]] {
			t.Errorf("container %s of pod %s was started anew, attempt %d", c.Metadata.Name, c.Labels["io.kubernetes.pod.name"],
				c.Metadata.Attempt)
		}
	}
}

// asItWas compares the API server's pods with the earlier ones: phase, address, containers, restarts.
func asItWas(t *testing.T, c *cluster.Cluster, ns string, before map[string]*corev1.Pod) {
	t.Helper()
	for name, was := range before {
		is := awaitAPIPod(t, c, ns, name, func(*corev1.Pod) error { return nil })
		if name == "once" {
			is.Status.PodIP = was.Status.PodIP // which went with the sandbox, and a kubelet that starts forgets it too
		}
		if is.Status.Phase != was.Status.Phase || is.Status.PodIP != was.Status.PodIP ||
			!is.Status.StartTime.Equal(was.Status.StartTime) {
			t.Errorf("pod %s: %s, %s since %v, was %s, %s since %v", name, is.Status.Phase, is.Status.PodIP, is.Status.StartTime,
				was.Status.Phase, was.Status.PodIP, was.Status.StartTime)
		}
		for _, w := range was.Status.Conditions {
			for _, i := range is.Status.Conditions {
				if i.Type == w.Type && (i.Status != w.Status || !i.LastTransitionTime.Equal(&w.LastTransitionTime)) {
					t.Errorf("pod %s: the condition %s is %s since %v, was %s since %v", name, w.Type, i.Status,
						i.LastTransitionTime, w.Status, w.LastTransitionTime)
				}
			}
		}
		for _, w := range slices.Concat(was.Status.InitContainerStatuses, was.Status.ContainerStatuses) {
			i := statusOf(is, w.Name)
			if i.ContainerID != w.ContainerID || i.RestartCount != w.RestartCount || i.Ready != w.Ready {
				t.Errorf("container %s of pod %s:\n%+v, was\n%+v", w.Name, name, i, w)
			}
		}
	}
}
