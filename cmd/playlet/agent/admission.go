package agent

import (
	"maps"
	"os"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// here is this node as admission sees it: before the API server has sent the Node, and always on a standalone node.
func here(node *config.Node, cluster *cluster, host *pod.Host, machine *registration.Reader) pods.Here {
	return pods.Here{
		Registered: cluster != nil,
		Node: pods.Node{
			Object: ownNode(node), Sysctls: node.Kubelet.AllowedUnsafeSysctls, AppArmor: appArmor("/sys"),
			PodLevelResize: node.FeatureEnabled(podLevelResize),
			NoRestartAll:   node.FeatureEnabled("NodeDeclaredFeatures") && !node.FeatureEnabled(restartAll),
			Swap:           host.Node.LimitedSwap && host.Node.CgroupV2 && host.Node.SwapController,
		},
		Allocatable:  func() v1.ResourceList { return allocatable(node, machine.Last()) },
		GroupsPolicy: func() bool { return host.Can().SupplementalGroupsPolicy },
		IsDevice:     host.Devices.IsDevice,
	}
}

// ownNode is a Node with the name, the labels and the taints that the configuration gives this node.
func ownNode(node *config.Node) *v1.Node {
	labels := map[string]string{
		v1.LabelHostname: node.NodeName, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(labels, node.NodeLabels)
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.NodeName, Labels: labels},
		Spec:       v1.NodeSpec{Taints: node.Kubelet.RegisterWithTaints},
	}
}

// appArmor says whether the kernel enforces AppArmor profiles.
func appArmor(sys string) bool {
	text, err := os.ReadFile(sys + "/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}
