package agent

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/container"
	"github.com/playlet-dev/playlet/actors/ender"
	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/logs"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	podsettings "github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/shutdown"
	"github.com/playlet-dev/playlet/actors/sources"
	"github.com/playlet-dev/playlet/actors/sources/apiserver"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/actors/sources/file"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/actors/sources/url"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/actors/status"
	"github.com/playlet-dev/playlet/actors/volumes"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// rows binds rows of the tree to the constructors of their actors. A row that the configuration switches off has nil.
type rows = map[supervisors.Kind]supervisors.Constructor

// wire binds every row of the tree.
func (a *Agent) wire() rows {
	meter := a.scales
	if meter == nil {
		meter = eviction.Places{Proc: procDir, Cgroups: cgroupDir, RootDir: a.node.RootDir, Images: a.client,
			Kubepods: a.kubepods}.Meter()
	}
	all := rows{
		"node": newNode,
		"pods": pods.New(pods.Options{
			Sources: sourcesOf(a.node), Unheard: len(unheard(a.node)) > 0 || onlySubmissions(a.node), Own: submit.Source,
			Cluster: a.cluster != nil, Board: a.board, Dir: stateDir(a.node), Named: a.names.Note, Here: a.here(),
		}),
		"server":    server.New(server.Options{Listeners: a.listeners}),
		"stats":     stats.New(a.figures),
		"images":    images.New(a.imageOptions(meter)),
		"resources": a.wireResources(),
		"identity":  a.wireIdentity(),
		"events":    events.New(a.eventOptions()),
		"eviction":  eviction.New(a.evictionOptions(meter)),
		"shutdown":  a.wireShutdown(),
	}
	for _, some := range []rows{a.wirePod(), a.wireRuntime(), a.wireObjects(), a.wireSources(), a.wireCluster()} {
		maps.Copy(all, some)
	}
	return all
}

// inCluster is the node's name in its cluster; empty on a standalone node.
func (a *Agent) inCluster() string {
	if a.cluster == nil {
		return ""
	}
	return a.node.NodeName
}

// wirePod binds the actors of a pod and of a container, the one that ends quarantined pods, and the prober.
func (a *Agent) wirePod() rows {
	initial, limit := a.node.CrashLoopBackOff()
	set := podsettings.Default(a.host, restarts.BackOff{Base: initial, Max: limit},
		func() string { return a.runtime.Load().Name })
	set.PodLevelResize = a.node.FeatureEnabled(podLevelResize)
	set.RestartAll = a.node.FeatureEnabled(restartAll)
	release := version.Kubernetes[:strings.LastIndexByte(version.Kubernetes, '.')]
	return rows{
		"pod":       pod.New(pod.Options{Host: a.host, Settings: set}),
		"container": container.New(a.host),
		"ender":     ender.New(a.host),
		"prober": prober.New(prober.Options{
			CRI: a.client, RootDir: a.node.RootDir, Events: a.host.Events, Lateness: a.late, UserAgent: "kube-probe/" + release,
			Observe: probed(a.metrics),
		}),
	}
}

// wireRuntime binds what looks after the container runtime: its events and its logs.
func (a *Agent) wireRuntime() rows {
	node, k := a.node, a.node.Kubelet
	return rows{
		"runtime": runtime.New(runtime.Options{
			CRI: a.client, Operations: a.host.Ops, Events: a.streams, State: a.runtime, Endpoint: k.ContainerRuntimeEndpoint,
			Registered: a.cluster != nil, PodCIDR: k.PodCIDR, PodLogsDir: k.PodLogsDir,
			Foreign: a.client.ForeignPod, Collect: &runtime.Policy{
				MinAge: node.MinimumContainerTTL, MaxPerContainer: int(node.MaxDeadContainersPerContainer),
				MaxTotal: int(node.MaxDeadContainers),
			}, StartedPeriod: node.ContainerLogMonitorInterval(),
			SandboxesFile: filepath.Join(stateDir(node), "sandboxes.json"), CNICache: cni.DefaultCacheDir,
			Network: networkPlaces(node),
		}),
		"logs": logs.New(logs.Options{
			CRI: a.client, Operations: a.host.Ops, PodLogsDir: k.PodLogsDir, LinksDir: node.LogLinksDir,
			MaxSize: node.ContainerLogMaxSize(), MaxFiles: int(ptr.Deref(k.ContainerLogMaxFiles, 2)),
			Workers: int(ptr.Deref(k.ContainerLogMaxWorkers, 1)), Every: node.ContainerLogMonitorInterval(),
		}),
	}
}

// pullOptions are what the configuration says of pulls.
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
			log.Warn("without effect: --image-credential-provider-config and --image-credential-provider-bin-dir need each other")
		}
		return nil, nil //nolint:nilnil // there are none
	}
	return provider.Load(file, dir, node.FeatureEnabled(provider.TokensGate), log)
}

// imageOptions are what the actor of images needs.
func (a *Agent) imageOptions(meter scales) images.Options {
	o, k := pullOptions(a.node), a.node.Kubelet
	o.Service, o.Operations, o.Objects, o.Sizes = a.client, a.host.Ops, a.host.Objects, a.host.Events
	o.Providers, o.Board = a.providers, a.board
	if a.cluster != nil {
		o.Accounts = a.cluster.accounts
	}
	if o.Policy.Kind != "" {
		o.Records = pullrecord.New(a.node.RootDir)
	}
	o.Collect = &images.Collect{
		Limits: images.Limits{
			High: int64(ptr.Deref(k.ImageGCHighThresholdPercent, 85)), Low: int64(ptr.Deref(k.ImageGCLowThresholdPercent, 80)),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		Store: a.client, NodeName: a.inCluster(),
		Space: func(ctx context.Context) (images.Space, error) {
			available, capacity, err := meter.ImageSpace(ctx)
			return images.Space{Available: available, Capacity: capacity}, err
		},
	}
	return o
}

// wireResources binds the actor of the cgroups.
func (a *Agent) wireResources() supervisors.Constructor {
	return resources.New(resources.Options{
		Tree: a.groupTree(), Operations: a.host.Ops, Devices: a.host.Devices, Foreign: a.client.ForeignPod,
		NodeName: a.inCluster(),
		Parent: func() string {
			if a.systemdGroups() {
				return podsSlice
			}
			return ""
		},
	})
}

// wireObjects binds volumes, and the ConfigMaps, Secrets, Services and RuntimeClasses of a folder and of the API server.
func (a *Agent) wireObjects() rows {
	node, c, host := a.node, a.cluster, a.host
	mounts := volumes.Options{RootDir: node.RootDir, Operations: host.Ops, Node: kinds.Facts{
		Allocatable: host.Allocatable, Objects: host.Objects, StaticStay: !node.EvictStaticPods,
		Log: a.log.With(podlog.ActorKey, messages.Volumes.String()),
	}}
	options := objects.Options{
		Dir: node.ObjectDir, Board: host.Objects, CheckFrequency: node.Kubelet.FileCheckFrequency.Duration,
		Poll: node.ObjectPoll(), NodeName: a.inCluster(),
	}
	if c != nil {
		mounts.Node.Tokens, mounts.Storage, options.Client = c.accounts, c.storage, c.clients.Main
	}
	out := rows{
		"volumes": volumes.New(mounts),
		"objects": nil,
	}
	if host.Objects != nil {
		out["objects"] = objects.New(options)
	}
	return out
}

// wireSources binds the sources that the configuration switches on.
func (a *Agent) wireSources() rows {
	node, k, state := a.node, a.node.Kubelet, stateDir(a.node)
	manifests := base.Node{NodeName: node.NodeName, Objects: node.ObjectDir != "", Cluster: a.cluster != nil}
	out := rows{
		"sources": sources.New(sources.Options{Sources: sourcesOf(node)}),
		"submit": submit.New(submit.Options{
			Dir: filepath.Join(state, "submissions"), Node: manifests, Board: a.board,
			ObjectDir: node.ObjectDir, StaticPath: k.StaticPodPath,
		}),
		"file": nil, "url": nil, "apiserver": nil,
	}
	if k.StaticPodPath != "" {
		out["file"] = file.New(file.Options{
			Path: k.StaticPodPath, CheckFrequency: k.FileCheckFrequency.Duration, StateDir: filepath.Join(state, "file-source"),
			Node: manifests,
		})
	}
	if k.StaticPodURL != "" {
		out["url"] = url.New(url.Options{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, CheckFrequency: k.HTTPCheckFrequency.Duration,
			StateDir: filepath.Join(state, "http-source"), Node: manifests,
		})
	}
	if c := a.cluster; c != nil {
		out["apiserver"] = apiserver.New(apiserver.Options{Feed: c.feed, Server: c.clients.Server})
	}
	return out
}

// wireIdentity binds the actor of the credentials; a standalone node whose port 10250 is closed has none.
func (a *Agent) wireIdentity() supervisors.Constructor {
	o := identity.Options{Serving: a.guard.serving, State: a.credentials}
	if a.cluster != nil {
		o.Client = a.cluster.identity
	}
	if o.Client == nil && o.Serving == nil {
		return nil
	}
	return identity.New(o)
}

// wireCluster binds the actors that write to the API server; a standalone node has none of them.
func (a *Agent) wireCluster() rows {
	c, k, devices := a.cluster, a.node.Kubelet, a.host.Devices
	if c == nil {
		return rows{"registration": nil, "status": nil}
	}
	sizes := sizes(a.node)
	sizes.Devices, sizes.Forgotten, sizes.Reset = devices.Capacity, devices.Forgotten, devices.Reset
	return rows{
		"registration": registration.New(registration.Options{
			Client: c.clients.Heartbeat, Watch: c.ownNode, State: &c.registered, Sizes: sizes,
			Desired: desiredNode(a.node, a.listeners.NodePort()),
			Machine: a.machine.Read, Images: a.client, Addresses: a.addresses.find,
			Runtime: runtimeOfNode(a.runtime), Network: networkProblem(a.node, a.client),
			UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
			LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
			Random:        rand.Float64,
		}),
		"status": status.New(status.Options{Client: c.clients.Main, Operations: a.host.Ops, NodeName: a.node.NodeName,
			State: &c.statuses}),
	}
}

// eventOptions are what the actor of events needs. On a standalone node it keeps them and sends none.
func (a *Agent) eventOptions() events.Options {
	o := events.Options{NodeName: a.node.NodeName, Log: a.events}
	if a.cluster != nil {
		o.Client, o.State = a.cluster.clients.Events.CoreV1(), &a.cluster.events
	}
	return o
}

// Where the kernel tells of processes and cgroups.
const (
	procDir   = "/proc"
	cgroupDir = "/sys/fs/cgroup"
)

// scales measure what a node may have too little of; *eviction.Meter does.
type scales interface {
	Measure(ctx context.Context) eviction.Measurement
	Await(ctx context.Context, levels map[eviction.Signal]int64) bool
	ImageSpace(ctx context.Context) (available, capacity int64, err error)
}

// evictionOptions are what eviction needs.
func (a *Agent) evictionOptions(meter scales) eviction.Options {
	k := a.node.Kubelet
	o := eviction.Options{
		Limits: eviction.Limits{
			Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod,
			MinimumReclaim: k.EvictionMinimumReclaim, PodsBounded: slices.Contains(k.EnforceNodeAllocatable, "pods"),
		},
		Transition: k.EvictionPressureTransitionPeriod.Duration, MaxGrace: k.EvictionMaxPodGracePeriod,
		Static: a.node.EvictStaticPods, LocalStorage: ptr.Deref(k.LocalStorageCapacityIsolation, true),
		Board: a.board, Figures: a.figures.PodStats, Measure: meter.Measure, Await: meter.Await, NodeName: a.inCluster(),
	}
	if a.kernelLog != "" {
		o.NextKill = eviction.KernelLog(a.kernelLog).Next
		counts := &eviction.KillCounts{Proc: procDir, Cgroups: cgroupDir, Kubepods: a.kubepods}
		o.NextCounted = counts.Next
	}
	if a.cluster != nil {
		o.State = &a.cluster.pressure
	}
	return o
}

// wireShutdown binds the actor that ends the pods when the machine shuts down, where the configuration gives them time for that.
func (a *Agent) wireShutdown() supervisors.Constructor {
	k := a.node.Kubelet
	groups := shutdown.Groups(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration,
		k.ShutdownGracePeriodByPodPriority)
	if len(groups) == 0 {
		return nil
	}
	if a.inhibitor == nil {
		a.inhibitor = shutdown.NewLogind(groups, "/etc/systemd/logind.conf.d")
	}
	return shutdown.New(shutdown.Options{
		Groups: groups, Inhibitor: a.inhibitor, Board: a.board, StatePath: shutdown.StatePath(a.node.RootDir), State: &a.shutdown,
	})
}

// sourcesOf are the sources that the configuration switches on, the one that wins a name first.
func sourcesOf(node *config.Node) []messages.Address {
	var out []messages.Address
	if node.Kubelet.StaticPodPath != "" {
		out = append(out, messages.File)
	}
	if node.Kubelet.StaticPodURL != "" {
		out = append(out, messages.URL)
	}
	out = append(out, messages.Submit)
	if !node.Standalone() {
		out = append(out, messages.APIServer)
	}
	return out
}

// onlySubmissions says that no source is configured. Then the owner of a pod that was found here is known only where it
// was submitted: others may belong to a kubelet whose unit is being tried out.
func onlySubmissions(node *config.Node) bool { return len(sourcesOf(node)) == 1 }

// unheard names the sources that are asked for and not configured. Their pods, which may run here, are neither run nor ended.
func unheard(node *config.Node) []string {
	if node.Standalone() && node.BootstrapKubeconfigPath != "" {
		return []string{"the API server (--bootstrap-kubeconfig without --kubeconfig)"}
	}
	return nil
}

// stateDir has the agent's own state.
func stateDir(node *config.Node) string { return filepath.Join(node.RootDir, "playlet") }

// newNode is the root: it only holds the others.
func newNode(string) supervisors.Actor { return nodeActor{} }

type nodeActor struct{}

func (nodeActor) Receive(ctx supervisors.Context, msg any) {
	switch msg.(type) {
	case messages.Started, messages.ChildStopped, messages.ChildQuarantined:
	default:
		ctx.Unhandled(msg)
	}
}
