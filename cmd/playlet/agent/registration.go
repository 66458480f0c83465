package agent

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/runtime"
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
