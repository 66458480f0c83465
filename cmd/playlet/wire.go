package main

import (
	"path/filepath"
	"strings"

	"github.com/playlet-dev/playlet/actors/apiserver"
	"github.com/playlet-dev/playlet/actors/container"
	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/file"
	"github.com/playlet-dev/playlet/actors/http"
	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/logs"
	"github.com/playlet-dev/playlet/actors/objects"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/prober"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/sources"
	"github.com/playlet-dev/playlet/actors/status"
	"github.com/playlet-dev/playlet/actors/submit"
	"github.com/playlet-dev/playlet/actors/volumes"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// wire binds each row of the tree to the constructor of its actor. A row that the configuration switches off is bound
// to nil.
func (a *agent) wire() map[supervisors.Kind]supervisors.Constructor {
	state := filepath.Join(a.node.RootDir, "playlet")
	initial, limit := a.node.CrashLoopBackOff()
	settings := pod.DefaultSettings(a.host, pod.BackOff{Base: initial, Max: limit}, func() string { return a.state.Load().Name })
	systemd := func() bool { return a.host.Can().SystemdCgroups }
	return map[supervisors.Kind]supervisors.Constructor{
		"node": newNode,
		"runtime": runtime.New(runtime.Options{
			CRI: a.client, Operations: a.host.Ops, Events: a.events, State: a.state, Endpoint: a.node.RuntimeEndpoint(), Registered: a.api != nil, PodCIDR: a.node.Kubelet.PodCIDR,
			PodLogsDir: a.node.PodLogsDir(), Collect: &runtime.Policy{
				MinAge: a.node.MinimumContainerTTL, MaxPerContainer: int(a.node.MaxDeadContainersPerContainer),
				MaxTotal: int(a.node.MaxDeadContainers),
			},
		}),
		"images":  images.New(a.pulls),
		"objects": a.objects(),
		"volumes": volumes.New(volumes.Options{
			RootDir: a.node.RootDir, Operations: a.host.Ops, Log: a.log.With(actorKey, messages.Volumes.String()), Node: a.volumeFacts(),
		}),
		"prober": prober.New(prober.Options{
			CRI: a.client, RootDir: a.node.RootDir, Events: a.host.Events, UserAgent: "kube-probe/" + kubernetesVersion[:strings.LastIndexByte(kubernetesVersion, '.')],
		}),
		"resources": resources.New(resources.Options{
			Tree: groupTree(a.node, a.host.Node, a.groups, systemd), Operations: a.host.Ops, Parent: func() string {
				if systemd() {
					return podsSlice
				}
				return ""
			},
		}),
		"logs": logs.New(logs.Options{
			CRI: a.client, Operations: a.host.Ops, PodLogsDir: a.node.PodLogsDir(), LinksDir: a.node.LogLinksDir,
			MaxSize: a.node.ContainerLogMaxSize(), MaxFiles: int(deref(a.node.Kubelet.ContainerLogMaxFiles, 2)),
			Workers: int(deref(a.node.Kubelet.ContainerLogMaxWorkers, 1)), Every: a.node.ContainerLogMonitorInterval(),
		}),
		"eviction":     a.eviction(),
		"registration": a.registration(),
		"pods": pods.New(pods.Options{
			Sources: a.sources(), Unheard: len(unheard(a.node)) > 0 || a.onlySubmissions(), Own: submit.Source, Cluster: a.api != nil,
			Board: a.board, FinishedPath: filepath.Join(state, "finished.json"), Named: a.names.note, Here: a.here(),
		}),
		"pod":       pod.New(pod.Options{Host: a.host, Settings: settings}),
		"container": container.New(a.host),
		"sources":   sources.New(sources.Options{Sources: a.sources()}),
		"file":      a.fileSource(state),
		"http":      a.httpSource(state),
		"submit": submit.New(submit.Options{
			Dir: filepath.Join(state, "submissions"), NodeName: a.node.NodeName, Board: a.board, Objects: a.node.ObjectDir != "", Cluster: a.api != nil,
		}),
		"apiserver": a.apiSource(),
		"events":    a.eventWriter(),
		"status":    a.statusWriter(),
		"server":    server.New(server.Options{Listeners: a.listeners}),
	}
}

// pullOptions are what the configuration says of pulls.
func pullOptions(node *config.Node) images.Options {
	o := images.Options{Serialize: node.SerialImagePulls(), QPS: 5, Burst: node.Kubelet.RegistryBurst, AuthFiles: images.AuthFiles(node.RootDir)}
	o.MaxParallel = int32(node.MaxParallelImagePulls()) //nolint:gosec // an int32 in the configuration
	if qps := node.Kubelet.RegistryPullQPS; qps != nil {
		o.QPS = *qps
	}
	return o
}

// sources are the sources that the configuration switches on, the one with the last word on a name first.
func (a *agent) sources() []messages.Address {
	var out []messages.Address
	if a.node.StaticPodPath() != "" {
		out = append(out, messages.File)
	}
	if a.node.Kubelet.StaticPodURL != "" {
		out = append(out, messages.HTTP)
	}
	out = append(out, messages.Submit)
	if a.api != nil {
		out = append(out, messages.APIServer)
	}
	return out
}

// onlySubmissions says that no source is configured. Then whose the pods are that were found here is known of submitted
// ones alone: the others may be those of a kubelet whose unit is being tried out.
func (a *agent) onlySubmissions() bool { return len(a.sources()) == 1 }

// unheard names the sources that the configuration has and that are not built yet. Their pods, a kubelet's perhaps, which
// ran here before, are neither run nor ended.
func unheard(node *config.Node) []string {
	var out []string
	if node.Standalone() && node.BootstrapKubeconfigPath != "" {
		out = append(out, "the API server (--bootstrap-kubeconfig)")
	}
	return out
}

func (a *agent) fileSource(state string) supervisors.Constructor {
	path := a.node.StaticPodPath()
	if path == "" {
		return nil
	}
	return file.New(file.Options{
		Path: path, CheckFrequency: a.node.FileCheckFrequency(), StateDir: filepath.Join(state, "file-source"),
		NodeName: a.node.NodeName, Objects: a.node.ObjectDir != "", Cluster: a.api != nil,
	})
}

func (a *agent) httpSource(state string) supervisors.Constructor {
	if a.node.Kubelet.StaticPodURL == "" {
		return nil
	}
	return http.New(http.Options{
		URL: a.node.Kubelet.StaticPodURL, Header: a.node.Kubelet.StaticPodURLHeader, CheckFrequency: a.node.HTTPCheckFrequency(),
		StateDir: filepath.Join(state, "http-source"), NodeName: a.node.NodeName, Objects: a.node.ObjectDir != "", Cluster: a.api != nil,
	})
}

// apiSource has the pods that the API server assigns to this node; a node of its own has none.
func (a *agent) apiSource() supervisors.Constructor {
	if a.feed == nil {
		return nil
	}
	return apiserver.New(apiserver.Options{Feed: a.feed, Server: a.api.Server})
}

// statusWriter writes to the API server what becomes of pods; a node of its own has none.
func (a *agent) statusWriter() supervisors.Constructor {
	if a.api == nil {
		return nil
	}
	return status.New(status.Options{Client: a.api.Main, Operations: a.host.Ops, NodeName: a.node.NodeName, State: a.written})
}

// objects has the ConfigMaps, Secrets, Services and RuntimeClasses of a folder and of the API server; a node with neither has none.
func (a *agent) objects() supervisors.Constructor {
	if a.host.Objects == nil {
		return nil
	}
	o := objects.Options{Dir: a.node.ObjectDir, Board: a.host.Objects, CheckFrequency: a.node.FileCheckFrequency(), Poll: a.node.ObjectPoll()}
	if a.api != nil {
		o.Client, o.NodeName = a.api.Main, a.node.NodeName
	}
	return objects.New(o)
}

// eventWriter writes Kubernetes Events; a node of its own has nobody to write them to.
func (a *agent) eventWriter() supervisors.Constructor {
	if a.api == nil {
		return nil
	}
	return events.New(events.Options{Client: a.api.Events.CoreV1(), NodeName: a.node.NodeName, State: a.told})
}

// volumeFacts are what volumes know of the node.
func (a *agent) volumeFacts() volumes.Facts {
	f := volumes.Facts{Allocatable: a.host.Allocatable, Objects: a.host.Objects}
	if a.api != nil {
		f.Tokens = volumes.NewTokens(a.api.Main)
	}
	return f
}

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
