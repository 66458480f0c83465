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
	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/logs"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
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
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/cni"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// rows binds rows of the tree to the constructors of their actors. A row that the configuration switches off has nil.
type rows = map[supervisors.Kind]supervisors.Constructor

// wire binds every row of the tree.
func (a *Agent) wire() rows {
	all := rows{
		"node":   newNode,
		"pods":   wirePods(a.node, a.cluster, a.board, a.names, here(a.node, a.cluster, a.host, a.machine)),
		"server": server.New(server.Options{Listeners: a.listeners}),
		"stats":  stats.New(a.figures),
	}
	maps.Copy(all, wirePod(a.node, a.host, a.runtime, a.late, a.metrics))
	meter := a.scales
	if meter == nil {
		meter = eviction.Places{Proc: procDir, Cgroups: cgroupDir, RootDir: a.node.RootDir, Images: a.client,
			Kubepods: a.kubepods}.Meter()
	}
	maps.Copy(all, wireRuntime(a.node, a.client, a.host, a.streams, a.runtime, a.cluster != nil))
	pulls := imageOptions(a.node, a.client, a.host, meter, a.cluster != nil)
	pulls.Providers, pulls.Board = a.providers, a.board
	if a.cluster != nil {
		pulls.Accounts = a.cluster.accounts
	}
	all["images"] = images.New(pulls)
	all["resources"] = a.wireResources()
	maps.Copy(all, wireObjects(a.node, a.cluster, a.host, a.log.With(actorKey, messages.Volumes.String())))
	maps.Copy(all, wireSources(a.node, a.cluster, a.board))
	maps.Copy(all, wireIdentity(a.cluster, a.guard, a.credentials))
	port := a.listeners.NodePort()
	maps.Copy(all, wireCluster(a.node, a.cluster, a.client, a.host, a.runtime, a.machine, a.addresses, port))
	all["events"] = events.New(a.eventOptions())
	all["eviction"] = eviction.New(a.evictionOptions(meter))
	all["shutdown"] = a.wireShutdown()
	return all
}

// wirePods binds the actor that merges what the sources want.
func wirePods(node *config.Node, c *cluster, board *pods.Board, names *podNames, here pods.Here) supervisors.Constructor {
	return pods.New(pods.Options{
		Sources: sourcesOf(node), Unheard: len(unheard(node)) > 0 || onlySubmissions(node), Own: submit.Source, Cluster: c != nil,
		Board: board, Dir: stateDir(node), Named: names.note, Here: here,
	})
}

// wirePod binds the actors of a pod and of a container, the one that ends quarantined pods, and the prober.
func wirePod(
	node *config.Node, host *pod.Host, state *runtime.State, late *prober.Lateness, metrics *stats.Metrics,
) rows {
	initial, limit := node.CrashLoopBackOff()
	settings := pod.DefaultSettings(host, pod.BackOff{Base: initial, Max: limit}, func() string { return state.Load().Name })
	settings.PodLevelResize = node.FeatureEnabled(podLevelResize)
	settings.RestartAll = node.FeatureEnabled(restartAll)
	release := version.Kubernetes[:strings.LastIndexByte(version.Kubernetes, '.')]
	return rows{
		"pod":       pod.New(pod.Options{Host: host, Settings: settings}),
		"container": container.New(host),
		"ender":     ender.New(host),
		"prober": prober.New(prober.Options{
			CRI: host.CRI, RootDir: node.RootDir, Events: host.Events, Lateness: late, UserAgent: "kube-probe/" + release,
			Observe: probed(metrics),
		}),
	}
}

// wireRuntime binds what looks after the container runtime: its events, its images and its logs.
func wireRuntime(
	node *config.Node, client *cri.Client, host *pod.Host, streams *runtime.Events, state *runtime.State, registered bool,
) rows {
	return rows{
		"runtime": runtime.New(runtime.Options{
			CRI: client, Operations: host.Ops, Events: streams, State: state, Endpoint: node.Kubelet.ContainerRuntimeEndpoint,
			Registered: registered, PodCIDR: node.Kubelet.PodCIDR, PodLogsDir: node.Kubelet.PodLogsDir,
			Foreign: client.ForeignPod, Collect: &runtime.Policy{
				MinAge: node.MinimumContainerTTL, MaxPerContainer: int(node.MaxDeadContainersPerContainer),
				MaxTotal: int(node.MaxDeadContainers),
			}, StartedPeriod: node.ContainerLogMonitorInterval(),
			SandboxesFile: filepath.Join(stateDir(node), "sandboxes.json"), CNICache: cni.DefaultCacheDir,
			Network: networkPlaces(node),
		}),
		"logs": logs.New(logs.Options{
			CRI: client, Operations: host.Ops, PodLogsDir: node.Kubelet.PodLogsDir, LinksDir: node.LogLinksDir,
			MaxSize: node.ContainerLogMaxSize(), MaxFiles: int(ptr.Deref(node.Kubelet.ContainerLogMaxFiles, 2)),
			Workers: int(ptr.Deref(node.Kubelet.ContainerLogMaxWorkers, 1)), Every: node.ContainerLogMonitorInterval(),
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
func imageOptions(node *config.Node, client *cri.Client, host *pod.Host, meter scales, registered bool) images.Options {
	o, k := pullOptions(node), node.Kubelet
	o.Service, o.Operations, o.Objects, o.Sizes = client, host.Ops, host.Objects, host.Events
	if o.Policy.Kind != "" {
		o.Records = pullrecord.New(node.RootDir)
	}
	o.Collect = &images.Collect{
		Limits: images.Limits{
			High: int64(ptr.Deref(k.ImageGCHighThresholdPercent, 85)), Low: int64(ptr.Deref(k.ImageGCLowThresholdPercent, 80)),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		Store: client,
		Space: func(ctx context.Context) (images.Space, error) {
			available, capacity, err := meter.ImageSpace(ctx)
			return images.Space{Available: available, Capacity: capacity}, err
		},
	}
	if registered {
		o.Collect.NodeName = node.NodeName
	}
	return o
}

// wireResources binds the actor of the cgroups.
func (a *Agent) wireResources() supervisors.Constructor {
	o := resources.Options{
		Tree: a.groupTree(), Operations: a.host.Ops, Devices: a.host.Devices, Foreign: a.client.ForeignPod,
		Parent: func() string {
			if a.systemdGroups() {
				return podsSlice
			}
			return ""
		},
	}
	if a.cluster != nil {
		o.NodeName = a.node.NodeName
	}
	return resources.New(o)
}

// wireObjects binds volumes, and the ConfigMaps, Secrets, Services and RuntimeClasses of a folder and of the API server.
func wireObjects(node *config.Node, c *cluster, host *pod.Host, log *slog.Logger) rows {
	facts := volumes.Facts{Allocatable: host.Allocatable, Objects: host.Objects, StaticStay: !node.EvictStaticPods}
	options := objects.Options{
		Dir: node.ObjectDir, Board: host.Objects, CheckFrequency: node.Kubelet.FileCheckFrequency.Duration,
		Poll: node.ObjectPoll(),
	}
	if c != nil {
		facts.Tokens, facts.Storage = c.accounts, c.storage
		options.Client, options.NodeName = c.clients.Main, node.NodeName
	}
	out := rows{
		"volumes": volumes.New(volumes.Options{RootDir: node.RootDir, Operations: host.Ops, Log: log, Node: facts}),
		"objects": nil,
	}
	if host.Objects != nil {
		out["objects"] = objects.New(options)
	}
	return out
}

// wireSources binds the sources that the configuration switches on.
func wireSources(node *config.Node, c *cluster, board *pods.Board) rows {
	state := stateDir(node)
	manifests := base.Node{NodeName: node.NodeName, Objects: node.ObjectDir != "", Cluster: c != nil}
	out := rows{
		"sources": sources.New(sources.Options{Sources: sourcesOf(node)}),
		"submit": submit.New(submit.Options{
			Dir: filepath.Join(state, "submissions"), Node: manifests, Board: board,
			ObjectDir: node.ObjectDir, StaticPath: node.Kubelet.StaticPodPath,
		}),
		"file": nil, "url": nil, "apiserver": nil,
	}
	if path := node.Kubelet.StaticPodPath; path != "" {
		out["file"] = file.New(file.Options{
			Path: path, CheckFrequency: node.Kubelet.FileCheckFrequency.Duration, StateDir: filepath.Join(state, "file-source"),
			Node: manifests,
		})
	}
	if k := node.Kubelet; k.StaticPodURL != "" {
		out["url"] = url.New(url.Options{
			URL: k.StaticPodURL, Header: k.StaticPodURLHeader, CheckFrequency: node.Kubelet.HTTPCheckFrequency.Duration,
			StateDir: filepath.Join(state, "http-source"), Node: manifests,
		})
	}
	if c != nil {
		out["apiserver"] = apiserver.New(apiserver.Options{Feed: c.feed, Server: c.clients.Server})
	}
	return out
}

// wireCluster binds the actors that write to the API server; a standalone node has none of them.
func wireCluster(
	node *config.Node, c *cluster, client *cri.Client, host *pod.Host, state *runtime.State, machine *registration.Reader,
	addresses *nodeAddresses, port int,
) rows {
	if c == nil {
		return rows{"registration": nil, "status": nil}
	}
	k := node.Kubelet
	sizes := sizes(node)
	sizes.Devices, sizes.Forgotten, sizes.Reset = host.Devices.Capacity, host.Devices.Forgotten, host.Devices.Reset
	return rows{
		"registration": registration.New(registration.Options{
			Client: c.clients.Heartbeat, Watch: c.ownNode, State: &c.registered, Desired: desiredNode(node, port),
			Sizes:   sizes,
			Machine: machine.Read, Images: client, Addresses: addresses.find,
			Runtime: runtimeOfNode(state), Network: networkProblem(node, client),
			UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
			LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
			Random:        rand.Float64,
		}),
		"status": status.New(status.Options{Client: c.clients.Main, Operations: host.Ops, NodeName: node.NodeName,
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
		Board: a.board, Figures: a.figures.PodStats, Measure: meter.Measure, Await: meter.Await,
	}
	if a.kernelLog != "" {
		o.NextKill = eviction.KernelLog(a.kernelLog).Next
		counts := &eviction.KillCounts{Proc: procDir, Cgroups: cgroupDir, Kubepods: a.kubepods}
		o.NextCounted = counts.Next
	}
	if a.cluster != nil {
		o.NodeName, o.State = a.node.NodeName, &a.cluster.pressure
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

// Receive implements supervisors.Actor.
func (nodeActor) Receive(ctx supervisors.Context, msg any) {
	switch msg.(type) {
	case messages.Started, messages.ChildStopped, messages.ChildQuarantined:
	default:
		ctx.Unhandled(msg)
	}
}
