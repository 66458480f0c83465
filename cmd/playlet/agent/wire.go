package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/container"
	"github.com/playlet-dev/playlet/actors/ender"
	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/eviction/oomkill"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
	podsettings "github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/registration"
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
	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
	"github.com/playlet-dev/playlet/actors/volumes"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// rows binds rows of the tree to the constructors of their actors. A row that the configuration switches off has nil.
type rows = map[supervisors.Kind]supervisors.Constructor

// wire binds every row of the tree. Each line shows the dependencies of its actor. The functions are below, or in the file of
// their subject.
func (a *Agent) wire() rows {
	node, host, machine, runtime, cluster := a.node, a.host, a.machine, a.runtime, a.cluster
	o, board := a.observatory, a.observatory.board
	return rows{
		"node":         newNode,
		"identity":     wireIdentity(a.guard, cluster),
		"runtime":      wireRuntime(node, runtime, host.Ops),
		"images":       wireImages(node, host, runtime.providers, board, cluster, machine.scales),
		"objects":      wireObjects(node, host.Objects, cluster),
		"volumes":      wireVolumes(node, host, cluster, a.log),
		"prober":       wireProber(host, o.lateness, o.metrics),
		"resources":    wireResources(node, host, machine.groups, board),
		"logs":         wireLogs(node, runtime.client, host.Ops),
		"eviction":     wireEviction(node, machine, runtime.state, board, o.figures, cluster),
		"shutdown":     wireShutdown(node, machine, board, cluster),
		"stats":        stats.New(o.figures),
		"registration": wireRegistration(node, host, cluster, machine, runtime, a.listeners.NodePort()),
		"pods":         wirePods(node, host, machine.reader, board, o.names),
		"pod":          wirePod(node, host, runtime.state),
		"container":    container.New(host),
		"ender":        ender.New(host),
		"status":       wireStatus(node, cluster, host.Ops),
		"sources":      sources.New(sources.Options{Sources: sourcesOf(node)}),
		"file":         wireFile(node, board),
		"url":          wireURL(node, board),
		"submit":       wireSubmit(node, board),
		"apiserver":    wireAPIServer(cluster),
		"events":       wireEvents(node, host.Node.CgroupV2, o.events, cluster, runtime.client.Crowded),
		"server":       server.New(server.Options{Listeners: a.listeners}),
	}
}

// nameInCluster is the node's name in its cluster; empty on a standalone node.
func nameInCluster(node *config.Node) string {
	if node.Standalone() {
		return ""
	}
	return node.NodeName
}

// stateDir has the agent's own state.
func stateDir(node *config.Node) string { return filepath.Join(node.RootDir, "playlet") }

// wirePods gives it this node as admission sees it: before the API server has sent the Node, and always on a standalone node.
func wirePods(node *config.Node, host *pod.Host, machine *registration.Reader, board *pods.Board,
	names *podlog.Names) supervisors.Constructor {
	_, lacks := featuresOf(node)
	return pods.New(pods.Options{
		Sources: sourcesOf(node), Unheard: len(unheard(node)) > 0 || onlySubmissions(node), Own: submit.Source,
		Cluster: !node.Standalone(), Board: board, Dir: stateDir(node), Named: names.Note,
		LocalNode: pods.LocalNode{
			Registered: !node.Standalone(),
			Node: pods.Node{
				Object: ownNode(node), Sysctls: node.Kubelet.AllowedUnsafeSysctls, AppArmor: appArmor("/sys"),
				PodLevelResize: node.FeatureEnabled(podLevelResize),
				Undeclared:     lacks,
				StaticCPUs:     host.CPUs.Static(), ResizeCPUs: node.FeatureEnabled(resizeExclusiveCPUs),
				StaticMemory: host.Memory.Static(), ResizeMemory: node.FeatureEnabled(resizeExclusiveMemory),
				Swap: host.Node.LimitedSwap && host.Node.CgroupV2 && host.Node.SwapController,
			},
			Allocatable:  func() v1.ResourceList { return allocatable(node, machine.Last()) },
			GroupsPolicy: func() bool { return host.Can().SupplementalGroupsPolicy },
			IsDevice:     host.Devices.IsDevice,
		},
	})
}

func wirePod(node *config.Node, host *pod.Host, state *runtime.State) supervisors.Constructor {
	initial, limit := node.CrashLoopBackOff()
	set := podsettings.Default(host, backoff.Policy{First: initial, Max: limit}, func() string { return state.Load().Name })
	set.PodLevelResize = node.FeatureEnabled(podLevelResize)
	set.RestartAll = node.FeatureEnabled(restartAll)
	return pod.New(pod.Options{Host: host, Settings: set})
}

func wireProber(host *pod.Host, lateness *prober.Lateness, metrics *agentmetrics.Metrics) supervisors.Constructor {
	release := version.Kubernetes[:strings.LastIndexByte(version.Kubernetes, '.')]
	return prober.New(prober.Options{
		CRI: host.CRI, RootDir: host.RootDir, Events: host.Events, Lateness: lateness, UserAgent: "kube-probe/" + release,
		Observe: probed(metrics),
	})
}

func wireVolumes(node *config.Node, host *pod.Host, c *cluster, log *slog.Logger) supervisors.Constructor {
	o := volumes.Options{RootDir: node.RootDir, Operations: host.Ops, Node: kinds.Facts{
		Allocatable: host.Allocatable, Objects: host.Objects, StaticStay: !node.EvictStaticPods,
		NFS: &nfs.Mounter{},
		Log: log.With(podlog.ActorKey, messages.Volumes.String()),
	}}
	if c != nil {
		o.Node.Tokens, o.Node.Bundles, o.Node.Certificates, o.Storage = c.accounts, c.bundles, c.certs, c.storage
	}
	return volumes.New(o)
}

// wireObjects binds the actor that publishes ConfigMaps, Secrets, Services and RuntimeClasses of a folder and of the API server.
func wireObjects(node *config.Node, board *objects.Board, c *cluster) supervisors.Constructor {
	if board == nil {
		return nil
	}
	o := objects.Options{
		Dir: node.ObjectDir, Board: board, CheckFrequency: node.Kubelet.FileCheckFrequency.Duration,
		Poll: node.ObjectPoll(), NodeName: nameInCluster(node),
	}
	if c != nil {
		o.Client = c.clients.Main
	}
	return objects.New(o)
}

// scales measures the resources of a node that can run short; *eviction.Meter implements it.
type scales interface {
	Measure(ctx context.Context) eviction.Measurement
	Await(ctx context.Context, levels map[eviction.Signal]int64) bool
	ImageSpace(ctx context.Context) (available, capacity int64, err error)
}

// wireEviction binds the actor that reclaims resources under pressure.
func wireEviction(node *config.Node, m *machine, state *runtime.State, board *pods.Board,
	figures *stats.Collector, c *cluster) supervisors.Constructor {
	k := node.Kubelet
	o := eviction.Options{
		Limits: eviction.Limits{
			Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod,
			MinimumReclaim: k.EvictionMinimumReclaim, PodsBounded: slices.Contains(k.EnforceNodeAllocatable, "pods"),
		},
		Transition: k.EvictionPressureTransitionPeriod.Duration, MaxGrace: k.EvictionMaxPodGracePeriod,
		Static: node.EvictStaticPods, LocalStorage: ptr.Deref(k.LocalStorageCapacityIsolation, true),
		Board: board, Figures: figures.PodStats, Measure: m.scales.Measure, Await: m.scales.Await, NodeName: nameInCluster(node),
	}
	if m.kernelLog != "" {
		o.NextKill = oomkill.New(m.kernelLog).Next
		counts := &oomkill.Counts{Proc: procDir, Cgroups: cgroupDir, Kubepods: kubepods(k, state)}
		o.NextCounted = counts.Next
	}
	if c != nil {
		o.State = &c.pressure
	}
	return eviction.New(o)
}

// wireShutdown binds the actor that ends the pods when the machine shuts down, where the configuration gives them time for that.
func wireShutdown(node *config.Node, m *machine, board *pods.Board, c *cluster) supervisors.Constructor {
	groups := shutdownGroups(node)
	if len(groups) == 0 {
		return nil
	}
	o := shutdown.Options{
		NodeName: node.NodeName, Groups: groups, Inhibitor: m.inhibitor, Board: board,
		StatePath: shutdown.StatePath(node.RootDir), State: &m.shutdown,
	}
	if c != nil {
		o.Unwritten, o.Unused = c.statuses.Unwritten, func(ctx context.Context) []string { return c.storage.Unused(ctx) }
	}
	return shutdown.New(o)
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

// onlySubmissions reports whether no source is configured. Then the owner of an existing pod is known only if the pod was
// submitted here. Others may belong to a kubelet whose unit is being tried out.
func onlySubmissions(node *config.Node) bool { return len(sourcesOf(node)) == 1 }

// unheard names the sources that are asked for and not configured. Their pods, which may run here, are neither run nor ended.
func unheard(node *config.Node) []string {
	if node.Standalone() && node.BootstrapKubeconfigPath != "" {
		return []string{"the API server (--bootstrap-kubeconfig without --kubeconfig)"}
	}
	return nil
}

// manifestsOf is this node as sources of manifests know it.
func manifestsOf(node *config.Node) base.Node {
	return base.Node{NodeName: node.NodeName, Objects: node.ObjectDir != "", Cluster: !node.Standalone()}
}

func wireFile(node *config.Node, board *pods.Board) supervisors.Constructor {
	k := node.Kubelet
	if k.StaticPodPath == "" {
		return nil
	}
	return file.New(file.Options{
		Path: k.StaticPodPath, CheckFrequency: k.FileCheckFrequency.Duration,
		StateDir: filepath.Join(stateDir(node), "file-source"), Node: manifestsOf(node), Board: board,
	})
}

func wireURL(node *config.Node, board *pods.Board) supervisors.Constructor {
	k := node.Kubelet
	if k.StaticPodURL == "" {
		return nil
	}
	return url.New(url.Options{
		URL: k.StaticPodURL, Header: k.StaticPodURLHeader, CheckFrequency: k.HTTPCheckFrequency.Duration,
		StateDir: filepath.Join(stateDir(node), "http-source"), Node: manifestsOf(node), Board: board,
	})
}

func wireSubmit(node *config.Node, board *pods.Board) supervisors.Constructor {
	return submit.New(submit.Options{
		Dir: filepath.Join(stateDir(node), "submissions"), Node: manifestsOf(node), Board: board,
		ObjectDir: node.ObjectDir, StaticPath: node.Kubelet.StaticPodPath,
	})
}

func wireAPIServer(c *cluster) supervisors.Constructor {
	if c == nil {
		return nil
	}
	return apiserver.New(apiserver.Options{Feed: c.feed, Server: c.clients.Server})
}

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
