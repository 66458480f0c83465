package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/supervisors"
)

// registration is the actor of the Node object; a node of its own has none.
func (a *agent) registration() supervisors.Constructor {
	if a.api == nil {
		return nil
	}
	if a.ownNode == nil {
		a.ownNode = registration.NewWatch(a.api.Main, a.node.NodeName)
	}
	k := a.node.Kubelet
	return registration.New(registration.Options{
		Client: a.api.Heartbeat, Watch: a.ownNode, State: a.registered, Wish: nodeWish(a.node), Sizes: a.nodeSizes(),
		Machine: a.machine.Read, Images: a.client,
		Addresses: a.addresses,
		Runtime:   runtimeOfNode(a.state), Network: networkWord(a.node, a.client),
		UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		Random:        rand.Float64,
	})
}

// eviction is the actor that measures what the node is short of, for the Node's conditions; a node of its own has none.
func (a *agent) eviction() supervisors.Constructor {
	if a.api == nil {
		return nil
	}
	k := a.node.Kubelet
	places := eviction.Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: a.node.RootDir, Images: a.client}
	return eviction.New(eviction.Options{
		Limits: eviction.Limits{
			Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod, MinimumReclaim: k.EvictionMinimumReclaim,
		},
		Transition: k.EvictionPressureTransitionPeriod.Duration, State: a.measured, Measure: places.Meter().Measure,
	})
}

// nodeWish is what the configuration says of the Node object. No kubelet API is served yet, and none is named: port 10250
// would lead whoever asks for logs to something else.
func nodeWish(node *config.Node) registration.Wish {
	k := node.Kubelet
	w := registration.Wish{
		Name: node.NodeName, Register: node.RegisterNode(), Labels: node.NodeLabels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID,
		ExternalCloud: node.CloudProvider == externalCloud, AttachDetach: deref(k.EnableControllerAttachDetach, true),
		KubeletVersion: kubeletVersion(version()), MaxImages: deref(k.NodeStatusMaxImages, 50),
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

// kubeletVersion is what stands for a kubelet's version: the release of Kubernetes that this is tested against, with our own
// as build metadata, which no comparison of versions looks at.
func kubeletVersion(own string) string {
	own = noMetadata.ReplaceAllString(own, "-")
	parts := slices.DeleteFunc(strings.Split(own, "."), func(s string) bool { return s == "" })
	return "v" + kubernetesVersion + "+playlet-" + strings.Join(parts, ".")
}

// runtimeOfNode translates what the runtime actor knows into what the Node tells of it.
func runtimeOfNode(state *runtime.State) func() registration.Runtime {
	return func() registration.Runtime {
		s := state.Load()
		out := registration.Runtime{
			Since: s.Since, Ready: s.Ready, Reason: s.Reason.Message, Name: s.Name, Version: s.Version,
			NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason,
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

// networkWord says why pods get no network, as the configuration of it shows that the runtime reads: it says itself where that
// is. The flags count where a runtime tells nothing of CNI. One that gives no answer is no word on the network: a look elsewhere
// could name a folder that nobody reads.
func networkWord(node *config.Node, runtime runtimeStatus) func(context.Context) error {
	return func(ctx context.Context) error {
		status, err := runtime.Status(ctx, true)
		if err != nil {
			return fmt.Errorf("%w: %w", registration.ErrNoWord, err)
		}
		places, ok := cni.PlacesOf(status.GetInfo())
		if !ok {
			places = cni.Places{ConfDir: node.CNIConfDir, BinDirs: node.CNIBinDirs, MaxConfigs: 1}
		}
		_, err = cni.Ready(ctx, places)
		return err
	}
}
