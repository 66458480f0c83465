package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
)

// declared are the feature gates of which the Node tells that they are on (KEP-5328): until it does, the API server refuses what
// needs them, and the scheduler sends such pods elsewhere.
var declared = []string{
	"ExtendWebSocketsToKubelet", podLevelResize, "InPlacePodVerticalScalingInitContainers", restartAll,
}

const (
	// podLevelResize is the gate of resizes of a pod's own resources (KEP-5419).
	podLevelResize = "InPlacePodLevelResourcesVerticalScaling"
	// restartAll is the gate of rules that restart all containers of a pod (KEP-5532).
	restartAll = "RestartAllContainersOnContainerExits"
)

// desiredNode is the Node object as the configuration has it. The port is where the node's API is served; 0, where it is not:
// another's would lead whoever asks for logs to something else.
func desiredNode(node *config.Node, port int) registration.Desired {
	k := node.Kubelet
	w := registration.Desired{
		Name: node.NodeName, Register: node.RegisterNode(), Labels: node.NodeLabels, Taints: k.RegisterWithTaints,
		ProviderID:    k.ProviderID,
		KubeletPort:   int32(port), //nolint:gosec // it was validated
		ExternalCloud: node.CloudProvider == externalCloud, AttachDetach: ptr.Deref(k.EnableControllerAttachDetach, true),
		KubeletVersion: kubeletVersion(version.Playlet()), MaxImages: ptr.Deref(k.NodeStatusMaxImages, 50),
	}
	for _, gate := range declared {
		if node.FeatureEnabled("NodeDeclaredFeatures") && node.FeatureEnabled(gate) {
			w.Features = append(w.Features, gate)
		}
	}
	for _, ip := range node.NodeIPs {
		if ip.IsUnspecified() {
			w.AnyIP = true
			continue
		}
		w.NodeIPs = append(w.NodeIPs, ip)
	}
	return w
}

// noMetadata is what build metadata of a semantic version cannot hold.
var noMetadata = regexp.MustCompile(`[^0-9A-Za-z.-]+`)

// kubeletVersion is reported as the kubelet's version: the release of Kubernetes that this is tested against, with our own
// as build metadata, which comparisons of versions ignore.
func kubeletVersion(own string) string {
	own = noMetadata.ReplaceAllString(own, "-")
	parts := slices.DeleteFunc(strings.Split(own, "."), func(s string) bool { return s == "" })
	return "v" + version.Kubernetes + "+playlet-" + strings.Join(parts, ".")
}

// runtimeOfNode translates the runtime actor's state for the Node's status.
func runtimeOfNode(state *runtime.State) func() registration.Runtime {
	return func() registration.Runtime {
		s := state.Load()
		out := registration.Runtime{
			Since: s.Since, Ready: s.Ready, Reason: s.Reason.Message, Name: s.Name, Version: s.Version,
			NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason,
		}
		if s.Ready && s.Stale != "" { // as the kubelet says it of a PLEG that is not healthy
			out.Ready, out.Reason = false, s.Stale
		}
		for _, h := range s.Handlers {
			out.Handlers = append(out.Handlers, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: &h.UserNamespaces,
			}})
		}
		if len(s.Handlers) > 0 || s.Features.SupplementalGroupsPolicy { // others say nothing of features
			out.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &s.Features.SupplementalGroupsPolicy}
		}
		return out
	}
}

// runtimeStatus asks the runtime how it is; *cri.Client does.
type runtimeStatus interface {
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// networkProblem says why pods get no network, from the configuration that the runtime reads: it reports where that is. The
// flags count where a runtime reports nothing of CNI. A runtime that does not answer is no statement about the network: a look
// elsewhere could name a folder that nobody reads.
func networkProblem(node *config.Node, runtime runtimeStatus) func(context.Context) error {
	return func(ctx context.Context) error {
		status, err := runtime.Status(ctx, true)
		if err != nil {
			return fmt.Errorf("%w: %w", registration.ErrNotKnown, err)
		}
		places, ok := cni.PlacesOf(status.GetInfo())
		if !ok {
			places = networkPlaces(node)
		}
		_, err = cni.Ready(ctx, places)
		return err
	}
}

// networkPlaces is where the flags say that the network is.
func networkPlaces(node *config.Node) cni.Places {
	return cni.Places{ConfDir: node.CNIConfDir, BinDirs: node.CNIBinDirs, MaxConfigs: 1}
}

// runtimeForAdmin translates the runtime actor's state for the admin socket: no actor's package knows another's.
func runtimeForAdmin(state *runtime.State) func() api.Runtime {
	return func() api.Runtime {
		s := state.Load()
		out := api.Runtime{
			Endpoint: s.Endpoint, Name: s.Name, Version: s.Version, APIVersion: s.APIVersion, Ready: s.Ready, Since: s.Since,
			NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason, Refused: s.Refused, Stale: s.Stale,
			Hints: string(s.Hints),
		}
		if r := s.Reason; r.Code != "" {
			out.Reason = &api.Reason{Code: r.Code, Message: r.Message, Permanent: r.Permanent, RetryAt: r.RetryAt}
		}
		return out
	}
}

// abilities translates what the runtime says it can do for the actors of pods. The cgroup driver of the configuration counts
// where the runtime does not report its own (KEP-4033).
func abilities(state *runtime.State, cgroupDriver string) func() pod.Abilities {
	return func() pod.Abilities {
		s := state.Load()
		can := pod.Abilities{SupplementalGroupsPolicy: s.Features.SupplementalGroupsPolicy,
			RecursiveReadOnlyMounts: map[string]bool{}}
		can.SystemdCgroups = cmp.Or(s.CgroupDriver, cgroupDriver) == "systemd"
		for _, h := range s.Handlers {
			can.RecursiveReadOnlyMounts[h.Name] = h.RecursiveReadOnlyMounts
		}
		return can
	}
}

// here is this node as admission sees it: before the API server has sent the Node, and always on a standalone node.
func (a *Agent) here() pods.Here {
	node, host := a.node, a.host
	return pods.Here{
		Registered: a.cluster != nil,
		Node: pods.Node{
			Object: ownNode(node), Sysctls: node.Kubelet.AllowedUnsafeSysctls, AppArmor: appArmor("/sys"),
			PodLevelResize: node.FeatureEnabled(podLevelResize),
			NoRestartAll:   node.FeatureEnabled("NodeDeclaredFeatures") && !node.FeatureEnabled(restartAll),
			Swap:           host.Node.LimitedSwap && host.Node.CgroupV2 && host.Node.SwapController,
		},
		Allocatable:  func() v1.ResourceList { return allocatable(node, a.machine.Last()) },
		GroupsPolicy: func() bool { return host.Can().SupplementalGroupsPolicy },
		IsDevice:     host.Devices.IsDevice,
	}
}

// ownNode is a Node with the name, the labels and the taints that the configuration gives this node.
func ownNode(node *config.Node) *v1.Node {
	labels := map[string]string{
		v1.LabelHostname: node.NodeName, v1.LabelOSStable: goruntime.GOOS, v1.LabelArchStable: goruntime.GOARCH,
		"beta.kubernetes.io/os": goruntime.GOOS, "beta.kubernetes.io/arch": goruntime.GOARCH,
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
