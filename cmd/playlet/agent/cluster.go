package agent

import (
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/sources/apiserver"
	"github.com/playlet-dev/playlet/actors/status"
	"github.com/playlet-dev/playlet/actors/volumes"
	"github.com/playlet-dev/playlet/actors/volumes/satoken"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// cluster is what a node of a cluster has and a standalone node has not; there it is nil.
type cluster struct {
	identity *identity.Client // the credentials of the clients
	clients  *apiserver.Clients
	feed     *apiserver.Feed     // the pods that the API server assigns to this node; made by start
	ownNode  *registration.Watch // made by start
	accounts *satoken.Source     // the service accounts of pods
	storage  *volumes.Storage    // persistent volumes; made by start

	registered registration.State
	pressure   eviction.State // what of the node's pressure cannot be measured
	statuses   status.State   // what cannot be written to the API server about pods
	events     events.State   // what keeps Kubernetes Events from being written
}

// dialCluster makes the clients towards the API server; nil on a standalone node. Nothing is sent.
func dialCluster(node *config.Node, log *slog.Logger) (*cluster, error) {
	if node.Standalone() {
		return nil, nil
	}
	k := node.Kubelet
	itself, err := identity.NewClient(identity.ClientOptions{
		NodeName: node.NodeName, Kubeconfig: node.KubeconfigPath, Bootstrap: node.BootstrapKubeconfigPath, CertDir: node.CertDir,
		Rotate: k.RotateCertificates, Log: log.With(podlog.ActorKey, messages.Identity.String()),
	})
	if err != nil {
		return nil, err
	}
	clients, err := apiserver.Dial(apiserver.ClientOptions{
		Config: recorded(itself.Config), ContentType: k.ContentType,
		UserAgent: fmt.Sprintf("playlet/%s (%s/%s)", version.Playlet(), goruntime.GOOS, goruntime.GOARCH),
		QPS:       unbounded(k.KubeAPIQPS, 50), Burst: int(k.KubeAPIBurst),
		EventQPS: unbounded(k.EventRecordQPS, 50), EventBurst: int(k.EventBurst),
		HeartbeatTimeout: k.NodeStatusUpdateFrequency.Duration,
	})
	if err != nil {
		itself.Close()
		return nil, err
	}
	return &cluster{
		identity: itself, clients: clients, accounts: satoken.New(clients.Main),
	}, nil
}

// unbounded translates a rate for client-go: there 0 is a default of its own, and a negative rate is no bound.
func unbounded(qps *int32, otherwise int32) float32 {
	if v := ptr.Deref(qps, otherwise); v != 0 {
		return float32(v)
	}
	return -1
}

// problems are sentences for health: what goes wrong between this node and its cluster.
func (c *cluster) problems() []string {
	out := slices.Concat(c.registered.Load().Problems, c.pressure.Problems())
	for _, t := range c.statuses.Load() {
		out = append(out, t.String())
	}
	return append(out, c.events.Problems()...)
}

// watch makes the watches, which outlive every actor.
func (c *cluster) watch(node *config.Node, ops *cri.Operations, log *slog.Logger) {
	if c == nil {
		return
	}
	c.feed = apiserver.NewFeed(apiserver.FeedOptions{
		Clients: c.clients, NodeName: node.NodeName, Log: log.With(podlog.ActorKey, messages.APIServer.String()),
	})
	c.ownNode = registration.NewWatch(c.clients.Main, node.NodeName, log)
	c.storage = volumes.NewStorage(volumes.StorageOptions{
		Client: c.clients.Main, NodeName: node.NodeName, RootDir: node.RootDir, Operations: ops,
		Log: log.With(podlog.ActorKey, messages.Volumes.String()),
	})
}

// close ends the watches.
func (c *cluster) close() {
	if c == nil {
		return
	}
	c.identity.Close()
	if c.feed != nil {
		c.feed.Close()
	}
	if c.ownNode != nil {
		c.ownNode.Close()
	}
	c.storage.Close()
}
