//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods that cannot run here fail with the kubelet's reasons, and are removed when deleted; a critical pod replaces another; pods
// without a network wait until it is back. Running pods are left alone. An agent that is killed while a pod makes room continues
// with the same pod.
func TestAdmission(t *testing.T) {
	const slow = "terminationGracePeriodSeconds: 4\n"
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Args, a.Config["maxPods"] = append(a.Args, "--node-labels=rack=7"), 3
	})
	create(t, c, ns, n.Name, manifest(s, "web", mustHave("rack",
		"7")+"nodeSelector: {rack: '7', kubernetes.io/os: linux, kubernetes.io/arch: "+
		runtime.GOARCH+"}\nos: {name: linux}\n"+slow+"containers: [{name: c, image: HELLO, args: [ignore-term], ports: [{containerPort: 8080, hostPort: 18099}]}]"))
	web := awaitAPIPod(t, c, ns, "web", ready)
	for name, want := range map[string]struct{ spec, reason, says string }{
		"picky": {"nodeSelector: {disk: ssd}\n" + cloudSleeper, "NodeAffinity",
			"wants the label disk=ssd, which this node has not"},
		"foreign": {"nodeSelector: {kubernetes.io/arch: pdp11}\n" + cloudSleeper, "NodeAffinity",
			"wants the label kubernetes.io/arch=pdp11, and this node has " + runtime.GOARCH},
		"affine": {mustHave("kubernetes.io/os", "windows") + cloudSleeper, "NodeAffinity",
			"this node's labels are not what the pod's node affinity requires"},
		"windows": {"os: {name: windows}\n" + cloudSleeper, "PodOSNotSupported",
			"spec.os.name is windows, and this node's is linux"},
		"big": {"containers: [{name: c, image: HELLO, resources: {requests: {cpu: 1000}}}]", "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 1000000"},
		"tuned": {"securityContext: {sysctls: [{name: net.core.somaxconn, value: '9'}]}\n" + cloudSleeper, "SysctlForbidden",
			"net.core.somaxconn"},
		"blocked": {"containers: [{name: c, image: HELLO, ports: [{containerPort: 8080, hostPort: 18099}]}]", "NodePorts",
			"is used by pod " + ns + "/web"},
	} {
		refused(t, c, s, n, ns, name, want.spec, want.reason, want.says)
	}

	// Admitted pods are not checked again after changes of the node while the agent was away; new ones are.
	must(t, a.Kill9())
	_, err := c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata": {"labels": {"rack": null}}, "spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, a.Start())
	refused(t, c, s, n, ns, "tainted", cloudSleeper, "TaintToleration", "does not tolerate the node's taint out:NoExecute")
	const stays = "tolerations: [{key: out, operator: Exists, effect: NoExecute}]\n"
	refused(t, c, s, n, ns, "racked", stays+"nodeSelector: {rack: '7'}\n"+cloudSleeper, "NodeAffinity",
		"wants the label rack=7, which this node has not")
	here, err := a.Snapshot(t.Context()) // pods rejected in the meantime came later
	must(t, err)
	if p := here.Pod("web"); p == nil {
		t.Error("the agent has no web")
	} else if p.Ending != "" || slices.Contains([]string{"terminating", "cleaning", "finished"}, p.Phase) {
		t.Errorf("web, which was admitted before, is %s: %s %s", p.Phase, p.Ending, p.Pod.Status.Reason)
	}

	config, gone := filepath.Join(s.CNIConfDir(), "10-playlet.conflist"), filepath.Join(t.TempDir(), "conflist")
	text, err := os.ReadFile(config)
	must(t, err)
	must(t, os.WriteFile(gone, text, 0o600))
	must(t, os.Remove(config))
	awaitNode(t, c, n.Name, func(n *corev1.Node) error {
		if nodeReady(n) == nil {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
	late := create(t, c, ns, n.Name, manifest(s, "late", stays+slow+"containers: [{name: c, image: HELLO, args: [ignore-term]}]"))
	create(t, c, ns, n.Name,
		manifest(s, "outer", stays+"hostNetwork: true\n"+slow+"containers: [{name: c, image: HELLO, args: [ignore-term]}]"))
	awaitHere(t, a, "late", func(p *stack.PodState) error {
		if p.Waiting == nil || p.Waiting.Code != "NetworkNotReady" || p.Pod.Status.Phase != corev1.PodPending {
			return fmt.Errorf("it waits for %+v", p.Waiting)
		}
		return nil
	})
	awaitEvents(t, c, ns, string(late.UID), map[string]int32{"Warning NetworkNotReady : network is not ready: ": 1})
	awaitAPIPod(t, c, ns, "outer", ready)
	must(t, os.WriteFile(config, text, 0o644))
	awaitAPIPod(t, c, ns, "late", ready)
	now, err := c.Admin.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	must(t, ready(now))
	if was, is := web.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID ||
		is.RestartCount != 0 || len(ofPod(t, s, "web")) != 1 {
		t.Errorf("web was %+v and is %+v", was, is)
	}

	create(t, c, ns, n.Name, manifest(s, "full", stays+cloudSleeper))
	awaitAPIPod(t, c, ns, "full", failedFor("OutOfpods"))
	must(t, a.Write("static.yaml", manifest(s, "static", cloudSleeper)))
	awaitHere(t, a, "static-"+n.Name, func(p *stack.PodState) error {
		if p.Waiting == nil || p.Waiting.Code != "Preempting" || !strings.Contains(p.Waiting.Message, "the end of "+ns+"/") {
			return fmt.Errorf("it waits for %+v", p.Waiting)
		}
		return nil
	})
	must(t, a.Kill9()) // whom it has chosen is chosen
	must(t, a.Start())
	awaitHere(t, a, "static-"+n.Name, readyHere)
	victims := map[string]bool{}
	await(t, func() error {
		for _, name := range []string{"web", "late", "outer"} {
			pod, err := c.Admin.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if failedFor("Preempting")(pod) == nil {
				victims[name] = true
			}
		}
		if len(victims) == 0 {
			return fmt.Errorf("nobody has made room for the static pod")
		}
		return nil
	})
	for _, name := range []string{"web", "late", "outer"} {
		if !victims[name] {
			awaitAPIPod(t, c, ns, name, ready)
		}
	}
	if len(victims) != 1 {
		t.Errorf("room for one was made by %v", victims)
	}
}

// refused makes a pod, which fails for that reason, in its status and in an event, and is never run, and takes it away.
func refused(t *testing.T, c *cluster.Cluster, s *stack.Stack, n *cluster.Node, ns, name, spec, reason, says string) {
	t.Helper()
	create(t, c, ns, n.Name, manifest(s, name, spec))
	pod := awaitAPIPod(t, c, ns, name, failedFor(reason))
	if !strings.HasPrefix(pod.Status.Message, "Pod was rejected: ") || !strings.Contains(pod.Status.Message, says) {
		t.Errorf("%s: %q", name, pod.Status.Message)
	}
	awaitEvents(t, c, ns, string(pod.UID), map[string]int32{"Warning " + reason + " : ": 1})
	remove(t, c, ns, name)
	awaitNoAPIPod(t, c, ns, name)
	if left := ofPod(t, s, name); len(left) > 0 {
		t.Errorf("%s was run: %v", name, left)
	}
}

// mustHave is a node affinity that is required.
func mustHave(label, value string) string {
	return fmt.Sprintf("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: "+
		"[{key: %s, operator: In, values: ['%s']}]}]}}}\n", label, value)
}

// failedFor is for awaitAPIPod.
func failedFor(reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != reason {
			return fmt.Errorf("pod %s is %s for %q: %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return nil
	}
}
