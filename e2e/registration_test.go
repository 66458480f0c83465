//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A node registers as itself and is ready, with the configured properties; its lease belongs to it and is renewed; the reported
// readiness outlives the agent.
func TestTheNodeRegisters(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	s := stack.Start(t, stack.Options{})
	for _, image := range []string{s.HelloImage(), s.PauseImage()} {
		_, err := s.Pull(t.Context(), image)
		must(t, err)
	}
	bothFamilies(t, s)
	a := joinCluster(t, c, n, s, func(a *stack.Agent) {
		a.Args = append(a.Args, "--node-labels=rack=7,topology.kubernetes.io/zone=z1",
			"--register-with-taints=only=me:NoSchedule", "--provider-id=cloud://one",
			"--node-ip="+isolate.NodeIP+","+nodeIPv6)
		maps.Copy(a.Config, map[string]any{
			"nodeLeaseDurationSeconds": 4, "nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "2s",
			"nodeStatusMaxImages": 1,
			"systemReserved":      map[string]string{"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "8Mi"},
			"kubeReserved":        map[string]string{"memory": "32Mi"},
			"evictionHard":        map[string]string{"memory.available": "1Mi", "nodefs.available": "2Mi"},
		})
	})
	node := awaitNode(t, c, n.Name, nodeReady)
	for label, want := range map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", "rack": "7",
		corev1.LabelTopologyZone: "z1"} {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	taint := func(n *corev1.Node) error {
		for _, one := range n.Spec.Taints {
			if one.Key == "only" && one.Value == "me" && one.Effect == corev1.TaintEffectNoSchedule {
				return nil
			}
		}
		return fmt.Errorf("taints are %v", n.Spec.Taints)
	}
	must(t, taint(node))
	st := node.Status
	if v := st.NodeInfo.KubeletVersion; !strings.HasPrefix(v, "v1.36.3+playlet-") {
		t.Errorf("the version is %s", v)
	}
	if v := st.NodeInfo.ContainerRuntimeVersion; v != "containerd://2.4.2" {
		t.Errorf("the runtime is %s", v)
	}
	for name, want := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: "100m", corev1.ResourceMemory: "97Mi", corev1.ResourceEphemeralStorage: "10Mi",
		corev1.ResourcePods: "0",
	} {
		capacity, less := st.Capacity[name], st.Allocatable[name]
		kept := capacity.DeepCopy()
		if kept.Sub(less); less.Sign() <= 0 || kept.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: capacity %s, allocatable %s, want %s kept", name, capacity.String(), less.String(), want)
		}
	}
	if node.Spec.ProviderID != "cloud://one" {
		t.Errorf("the provider ID is %q", node.Spec.ProviderID)
	}
	for _, name := range []string{"runc", stack.SecondHandler} {
		if !slices.ContainsFunc(st.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool {
			return h.Name == name && h.Features != nil && h.Features.RecursiveReadOnlyMounts != nil &&
				h.Features.UserNamespaces != nil
		}) {
			t.Errorf("handler %s is not among %+v", name, st.RuntimeHandlers)
		}
	}
	if st.Features == nil || st.Features.SupplementalGroupsPolicy == nil || !*st.Features.SupplementalGroupsPolicy {
		t.Errorf("features are %+v", st.Features)
	}
	awaitNode(t, c, n.Name, func(n *corev1.Node) error {
		if len(n.Status.Images) != 1 {
			return fmt.Errorf("images are %v", n.Status.Images)
		}
		return nil
	})
	ip := func(address string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
	}
	if want := []corev1.NodeAddress{ip(isolate.NodeIP), ip(nodeIPv6),
		{Type: corev1.NodeHostName, Address: n.Name}}; !slices.Equal(st.Addresses, want) {
		t.Errorf("addresses are %v, want %v", st.Addresses, want)
	}
	podsOfBothFamilies(t, c, s, n.Name, c.Namespace(t))
	lease := awaitLease(t, c, n, nil)
	if len(lease.owners) != 1 || lease.owners[0].UID != node.UID {
		t.Errorf("the lease belongs to %v, want %s", lease.owners, node.UID)
	}
	awaitLease(t, c, n, &lease.renewed)

	later := func(now *corev1.Node) error {
		if was, is := ready1(node), ready1(now); is.LastHeartbeatTime.After(was.LastHeartbeatTime.Time) {
			return nil
		}
		return errors.New("the agent has not reported again")
	}
	awaitNode(t, c, n.Name, later) // at the interval of nodeStatusReportFrequency

	must(t, a.Kill9())
	var err error
	node, err = c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata": {"labels": {"topology.kubernetes.io/zone": "z2", "kubernetes.io/arch": null, "rack": "8"}}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, a.Start())
	first := awaitLease(t, c, n, nil)
	awaitLease(t, c, n, &first.renewed)
	again := awaitNode(t, c, n.Name, later)
	for label, want := range map[string]string{corev1.LabelTopologyZone: "z1", corev1.LabelArchStable: runtime.GOARCH,
		"rack": "8"} { // the last is set at first only
		if got := again.Labels[label]; got != want {
			t.Errorf("after a restart label %s is %q, want %q", label, got, want)
		}
	}
	if was, is := ready1(node), ready1(again); is.Status != corev1.ConditionTrue ||
		!is.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("Ready was %+v and is %+v", was, is)
	}
	if node.UID != again.UID {
		t.Error("the Node was made anew")
	}
	must(t, taint(again))
}

func ready1(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

type lease struct {
	owners  []metav1.OwnerReference
	renewed metav1.MicroTime
}

// awaitLease waits until the node has a lease, which was renewed after the time where there is one.
func awaitLease(t *testing.T, c *cluster.Cluster, n *cluster.Node, after *metav1.MicroTime) (out lease) {
	t.Helper()
	await(t, func() error {
		l, err := c.Admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if after != nil && !l.Spec.RenewTime.After(after.Time) {
			return errors.New("the lease is not renewed")
		}
		out = lease{l.OwnerReferences, *l.Spec.RenewTime}
		return nil
	})
	return out
}

// Ready reports a missing network at once, according to the runtime's configuration, whatever the flags.
func TestANodeWithoutItsNetworkSaysSo(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	s, _ := inCluster(t, c, n, func(a *stack.Agent) {
		a.Args = append(a.Args, "--cni-conf-dir="+filepath.Join(a.RootDir, "no-such-folder"), "--cni-bin-dir="+a.RootDir)
		a.Config["nodeStatusUpdateFrequency"] = "1s"
		a.Config["evictionHard"] = map[string]string{
			"memory.available": "99.9%", "pid.available": "1G", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%",
		}
	})
	awaitNode(t, c, n.Name, pressed(corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "memory.available is ",
		"less than 99.9% (evictionHard)"))
	node := awaitNode(t, c, n.Name, pressed(corev1.NodePIDPressure, "KubeletHasInsufficientPID", "pid.available is ",
		"less than 1G (evictionHard)"))
	if pressed(corev1.NodeDiskPressure, "KubeletHasDiskPressure")(node) == nil {
		t.Errorf("%+v", node.Status.Conditions)
	}
	config := filepath.Join(s.CNIConfDir(), "10-playlet.conflist")
	was, err := os.ReadFile(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(s.CNIOwnBinDir(), "not-now"), []byte(`#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}' ;;
STATUS) echo '{"cniVersion": "1.1.0", "code": 50, "msg": "the daemon of not-now does not run"}'; exit 1 ;;
esac
`), 0o755))
	plugin := func(name string) string {
		return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": %q}]}`, name)
	}
	for _, one := range []struct{ text, says string }{
		{"{\n\"name\": ,\n}", "the network configuration " + config + " is not valid: line 2: "},
		{plugin("nowhere"), "the network plugin nowhere of " + config + " is missing: it is in none of " + s.CNIBinDir()},
		{plugin("not-now"), "the network plugin not-now of " + config +
			" says that it is not available: the daemon of not-now does not run"},
		{"", "no network configuration in " + s.CNIConfDir()},
	} {
		if must(t, os.Remove(config)); one.text != "" {
			must(t, os.WriteFile(config, []byte(one.text), 0o600))
		}
		awaitNode(t, c, n.Name, func(n *corev1.Node) error {
			if r := ready1(n); r.Status != corev1.ConditionFalse || r.Reason != "KubeletNotReady" ||
				!strings.Contains(r.Message, "container runtime network not ready") ||
				!strings.Contains(r.Message, one.says) {
				return fmt.Errorf("Ready is %+v, and does not say %q", r, one.says)
			}
			return nil
		})
	}
	// The runtime renders a configuration with the Node's range of addresses from a template: the agent sends it the range.
	must(t, os.WriteFile(s.CNITemplate(), []byte(strings.ReplaceAll(string(was), s.Subnet(), "{{.PodCIDR}}")), 0o600))
	_, err = c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec": {"podCIDR": %q, "podCIDRs": [%q]}}`, s.Subnet(), s.Subnet()), metav1.PatchOptions{})
	must(t, err)
	back := awaitNode(t, c, n.Name, nodeReady)
	if a := back.Status.Addresses; len(a) != 2 || a[0].Type != corev1.NodeInternalIP || a[1].Address != n.Name {
		t.Errorf("addresses are %v", a)
	}
	turns := map[string]int32{}
	for _, reason := range []string{"NodeNotReady", "NodeReady", "NodeHasInsufficientMemory", "NodeHasInsufficientPID"} {
		turns["Normal "+reason+" : Node "+n.Name+" status is now: "+reason] = 1
	}
	awaitEvents(t, c, corev1.NamespaceDefault, n.Name, turns)
	made, err := os.ReadDir(s.CNIConfDir())
	must(t, err)
	if len(made) != 1 || made[0].Name() == filepath.Base(config) {
		t.Errorf("the network's configuration is in %v", made)
	}
}

// pressed is for awaitNode: a condition of pressure that is true, and why.
func pressed(kind corev1.NodeConditionType, reason string, says ...string) func(*corev1.Node) error {
	return func(n *corev1.Node) error {
		for _, one := range n.Status.Conditions {
			if one.Type == kind && one.Status == corev1.ConditionTrue && one.Reason == reason &&
				!slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(one.Message, text) }) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", n.Status.Conditions)
	}
}

// With registerNode off, no Node is created, and an existing one is kept up to date.
func TestANodeThatOthersMake(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Args, a.Config["registerNode"] = n.Args(), false
		a.Config["evictionHard"] = map[string]string{"memory.available": "0%", "nodefs.available": "99.9999%"}
	})
	await(t, func() error {
		_, text, err := a.Healthz(t.Context(), "?verbose")
		if err == nil && !strings.Contains(text, "registerNode is off") {
			err = errors.New(text)
		}
		return err
	})
	_, err := n.Create(t.Context(), func(n *corev1.Node) { n.Labels = map[string]string{"made": "by-hand"} })
	must(t, err)
	node := awaitNode(t, c, n.Name, nodeReady)
	if node.Labels["made"] != "by-hand" || node.Labels[corev1.LabelHostname] != "" {
		t.Errorf("labels are %v", node.Labels)
	}
	awaitLease(t, c, n, nil)
	awaitNode(t, c, n.Name, pressed(corev1.NodeDiskPressure, "KubeletHasDiskPressure", "nodefs.available is ",
		"less than 99.9999% (evictionHard)"))
}
