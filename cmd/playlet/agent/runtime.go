package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/logs"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/supervisors"
)

// containerRuntime is the connection to the container runtime, its event stream and its reported status.
type containerRuntime struct {
	client    *cri.Client
	streams   *runtime.Events
	state     *runtime.State
	started   *facts.StartFacts
	providers *provider.Providers // of the credentials that it pulls with; nil where there are none
}

// dialRuntime makes the client of the container runtime; it connects when it is asked. Each call is counted, recorded and traced.
func dialRuntime(node *config.Node, o *observatory, providers *provider.Providers, log *slog.Logger) (*containerRuntime, error) {
	client, err := cri.Dial(cri.Options{
		Observe: func(ctx context.Context, seen cri.Observation) {
			o.metrics.RuntimeCall(seen)
			recordRuntimeCall(ctx, seen)
		},
		DialOptions:     o.tracing.DialOptions(),
		RuntimeEndpoint: node.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: node.ImageEndpoint(),
		RequestTimeout: node.Kubelet.RuntimeRequestTimeout.Duration,
		Limits:         cri.Limits{cri.ClassPull: pullOptions(node).Slots()},
		Foreign:        locks.Foreign(node.RootDir, log),
	})
	if err != nil {
		return nil, err
	}
	return &containerRuntime{
		client: client, streams: runtime.NewEvents(client, log), state: &runtime.State{}, started: &facts.StartFacts{},
		providers: providers,
	}, nil
}

// wireRuntime binds the actor that watches the container runtime.
func wireRuntime(node *config.Node, r *containerRuntime, ops *cri.Operations) supervisors.Constructor {
	k := node.Kubelet
	return runtime.New(runtime.Options{
		CRI: r.client, Operations: ops, Started: r.started, Events: r.streams, State: r.state,
		Endpoint: k.ContainerRuntimeEndpoint,
		NodeName: nameInCluster(node), Registered: !node.Standalone(), PodCIDR: k.PodCIDR, PodLogsDir: k.PodLogsDir,
		Foreign: r.client.ForeignPod,
		Collect: &runtime.Policy{
			MinAge: node.MinimumContainerTTL, MaxPerContainer: int(node.MaxDeadContainersPerContainer),
			MaxTotal: int(node.MaxDeadContainers),
		},
		StartedPeriod: node.ContainerLogMonitorInterval(),
		SandboxesFile: filepath.Join(stateDir(node), "sandboxes.json"), CNICache: cni.DefaultCacheDir,
		Network: networkPlaces(node),
	})
}

// wireLogs binds the actor that rotates the logs of containers.
func wireLogs(node *config.Node, client *cri.Client, ops *cri.Operations) supervisors.Constructor {
	k := node.Kubelet
	return logs.New(logs.Options{
		CRI: client, Operations: ops, PodLogsDir: k.PodLogsDir, LinksDir: node.LogLinksDir,
		MaxSize: node.ContainerLogMaxSize(), MaxFiles: int(ptr.Deref(k.ContainerLogMaxFiles, 2)),
		Workers: int(ptr.Deref(k.ContainerLogMaxWorkers, 1)), Every: node.ContainerLogMonitorInterval(),
	})
}

// runtimeOfNode translates the runtime actor's state for the Node's status.
func runtimeOfNode(state *runtime.State) func() registration.Runtime {
	return func() registration.Runtime {
		s := state.Load()
		out := registration.Runtime{
			Since: s.Since, Ready: s.Ready, Reason: s.Reason.Message, Name: s.Name, Version: s.Version,
			NetworkReady: s.NetworkReady, NetworkReason: s.NetworkReason,
		}
		if s.Ready && s.Stale != "" { // the kubelet's wording for an unhealthy PLEG
			out.Ready, out.Reason = false, s.Stale
		}
		for _, h := range s.Handlers {
			out.Handlers = append(out.Handlers, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: new(runsUsers(h)),
			}})
		}
		if len(s.Handlers) > 0 || s.Features.SupplementalGroupsPolicy { // other runtimes do not report features
			out.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &s.Features.SupplementalGroupsPolicy}
		}
		return out
	}
}

// runsUsers reports whether the runtime's handler and the kernel can run pods with user namespaces of their own.
func runsUsers(h runtime.Handler) bool { return h.UserNamespaces && pod.KernelUsers(procDir) == nil }

// runtimeStatus asks the runtime how it is; *cri.Client does.
type runtimeStatus interface {
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// networkProblem returns the reason why pods get no network, from the configuration in the folder that the runtime reports. The
// flags are used if the runtime reports nothing about CNI. An unreachable runtime yields no result: the default folder may be
// one that no runtime reads.
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

// networkPlaces returns the network's folders as given by the flags.
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

// abilities translates the features that the runtime reports for the actors of pods. The configured cgroup driver is used if the
// runtime does not report its own (KEP-4033).
func abilities(state *runtime.State, cgroupDriver string) func() pod.Abilities {
	return func() pod.Abilities {
		s := state.Load()
		can := pod.Abilities{SupplementalGroupsPolicy: s.Features.SupplementalGroupsPolicy,
			RecursiveReadOnlyMounts: map[string]bool{}, UserNamespaces: map[string]bool{}}
		can.SystemdCgroups = cmp.Or(s.CgroupDriver, cgroupDriver) == "systemd"
		for _, h := range s.Handlers {
			can.RecursiveReadOnlyMounts[h.Name], can.UserNamespaces[h.Name] = h.RecursiveReadOnlyMounts, runsUsers(h)
		}
		return can
	}
}

// pullOptions returns the configured options of pulls.
func pullOptions(node *config.Node) images.Options {
	var verify pullrecord.Policy
	if node.FeatureEnabled("KubeletEnsureSecretPulledImages") {
		verify.Kind = node.Kubelet.ImagePullCredentialsVerificationPolicy
		verify.Allowlist = node.Kubelet.PreloadedImagesVerificationAllowlist
	}
	return images.Options{
		Policy:    verify,
		Serialize: node.SerialImagePulls(), QPS: ptr.Deref(node.Kubelet.RegistryPullQPS, 5), Burst: node.Kubelet.RegistryBurst,
		MaxParallel: int32(node.MaxParallelImagePulls()), //nolint:gosec // an int32 in the configuration
		AuthFiles:   images.AuthFiles(node.RootDir),
	}
}

// loadProviders reads the node's credential provider plugins. Both flags are needed for any, as with the kubelet.
func loadProviders(node *config.Node, log *slog.Logger) (*provider.Providers, error) {
	file, dir := node.ImageCredentialProviderConfig, node.ImageCredentialProviderBinDir
	if file == "" || dir == "" {
		if file != dir {
			log.Warn("no credential providers are used: set both --image-credential-provider-config and " +
				"--image-credential-provider-bin-dir")
		}
		return nil, nil //nolint:nilnil // there are none
	}
	return provider.Load(file, dir, node.FeatureEnabled(provider.TokensGate), log)
}

// wireImages binds the actor that pulls images and removes unused ones when the disk is full.
func wireImages(node *config.Node, host *pod.Host, providers *provider.Providers, board *pods.Board, c *cluster,
	disk scales) supervisors.Constructor {
	o, k := pullOptions(node), node.Kubelet
	o.Service, o.Operations, o.Objects, o.Sizes = host.CRI, host.Ops, host.Objects, host.Events
	o.Providers, o.Board = providers, board
	if c != nil {
		o.Accounts = c.accounts
	}
	if o.Policy.Kind != "" {
		o.Records = pullrecord.New(node.RootDir)
	}
	o.Collect = &images.Collect{
		Limits: images.Limits{
			High: int64(ptr.Deref(k.ImageGCHighThresholdPercent, 85)), Low: int64(ptr.Deref(k.ImageGCLowThresholdPercent, 80)),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		Store: host.CRI, NodeName: nameInCluster(node),
		Space: func(ctx context.Context) (images.Space, error) {
			available, capacity, err := disk.ImageSpace(ctx)
			return images.Space{Available: available, Capacity: capacity}, err
		},
	}
	return images.New(o)
}
