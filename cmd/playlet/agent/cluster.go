package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/events"
	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/sources/apiserver"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/actors/status"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/podcert"
	"github.com/playlet-dev/playlet/actors/volumes/satoken"
	"github.com/playlet-dev/playlet/actors/volumes/trust"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// cluster is the state of a node that belongs to a cluster. It is nil on a standalone node.
type cluster struct {
	identity *identity.Client // the credentials of the clients
	clients  *apiserver.Clients
	feed     *apiserver.Feed     // the pods that the API server assigns to this node; made by start
	ownNode  *registration.Watch // made by start
	accounts *satoken.Source     // the service accounts of pods
	bundles  *trust.Source       // the ClusterTrustBundles of pods; nil: the feature gate is off
	certs    *podcert.Source     // the certificates of pods; nil: the feature gate is off
	storage  *persistent.Storage // persistent volumes; made by start

	registered registration.State
	pressure   eviction.State // has the node's pressure signals that cannot be measured
	statuses   status.State   // has the pod statuses that cannot be written to the API server
	events     events.State   // has the reason why Kubernetes Events cannot be written
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

// problems returns the problems between this node and its cluster, as sentences for health.
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
	if node.FeatureEnabled("ClusterTrustBundle") && node.FeatureEnabled("ClusterTrustBundleProjection") { // as the kubelet
		c.bundles = trust.New(c.clients.Main, log.With(podlog.ActorKey, messages.Volumes.String()))
	}
	if node.FeatureEnabled("PodCertificateRequest") {
		c.certs = podcert.New(podcert.Options{Client: c.clients.Main, NodeName: node.NodeName, Account: c.accounts.Account})
	}
	c.storage = persistent.New(persistent.Options{
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
	var watches sync.WaitGroup // side by side: a reflector may sleep for seconds before it looks whether it is to end
	if c.feed != nil {
		watches.Go(c.feed.Close)
	}
	if c.ownNode != nil {
		watches.Go(c.ownNode.Close)
	}
	watches.Go(c.storage.Close)
	watches.Go(c.bundles.Close)
	watches.Wait()
}

// claims returns the ResourceClaims of the node's pods; nil on a standalone node.
func (c *cluster) claims(node *config.Node, log *slog.Logger) *resources.Claims {
	if c == nil {
		return nil
	}
	return resources.NewClaims(resources.ClaimOptions{
		Client: c.clients.Main, NodeName: node.NodeName, RootDir: node.RootDir, Retry: kinds.RetryPlugin, Log: log,
		Extended: node.FeatureEnabled("DRAExtendedResource"), Health: node.FeatureEnabled("ResourceHealthStatus"),
		Messages: node.FeatureEnabled("ResourceHealthStatusMessage"),
	})
}

// usage returns the function that reads the usage of a pod's volumes: of CSI drivers, of nfs, and of claims.
func (c *cluster) usage(rootDir string) func(context.Context, *v1.Pod) (map[string]stats.VolumeUsage, error) {
	return func(ctx context.Context, pod *v1.Pod) (map[string]stats.VolumeUsage, error) {
		var storage *persistent.Storage
		if c != nil {
			storage = c.storage // it is made after the collector of figures
		}
		all, err := storage.Usage(ctx, rootDir, pod)
		out := map[string]stats.VolumeUsage{}
		for name, u := range all {
			out[name] = stats.VolumeUsage{Bytes: stats.VolumeAmount(u.Bytes), Inodes: stats.VolumeAmount(u.Inodes)}
		}
		return out, err
	}
}

// declared lists the feature gates that the Node declares as enabled (KEP-5328). Until it does, the API server rejects requests
// that need them, and the scheduler sends such pods elsewhere.
var declared = []string{
	"ExtendWebSocketsToKubelet", podLevelResize, "InPlacePodVerticalScalingInitContainers", restartAll,
}

const (
	// podLevelResize is the gate of resizes of a pod's own resources (KEP-5419).
	podLevelResize = "InPlacePodLevelResourcesVerticalScaling"
	// restartAll is the gate of rules that restart all containers of a pod (KEP-5532).
	restartAll = "RestartAllContainersOnContainerExits"
)

// featuresOf lists the features that the Node declares and those that it lacks: neither where it declares none.
func featuresOf(node *config.Node) (has, lacks []string) {
	if !node.FeatureEnabled("NodeDeclaredFeatures") {
		return nil, nil
	}
	for _, gate := range declared {
		if node.FeatureEnabled(gate) {
			has = append(has, gate)
		} else {
			lacks = append(lacks, gate)
		}
	}
	return has, lacks
}

// desiredNode is the Node object as the configuration has it. The port is where the node's API is served; 0, where it is not:
// another's would lead whoever asks for logs to something else.
func desiredNode(node *config.Node, port int) registration.NodeConfig {
	k := node.Kubelet
	w := registration.NodeConfig{
		Name: node.NodeName, Register: node.RegisterNode(), Labels: node.NodeLabels, Taints: k.RegisterWithTaints,
		ProviderID:    k.ProviderID,
		KubeletPort:   int32(port), //nolint:gosec // it was validated
		ExternalCloud: node.CloudProvider == externalCloud, AttachDetach: ptr.Deref(k.EnableControllerAttachDetach, true),
		KubeletVersion: version.Kubelet(), MaxImages: ptr.Deref(k.NodeStatusMaxImages, 50),
	}
	w.Features, _ = featuresOf(node)
	for _, ip := range node.NodeIPs {
		if ip.IsUnspecified() {
			w.AnyIP = true
			continue
		}
		w.NodeIPs = append(w.NodeIPs, ip)
	}
	return w
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

// appArmor reports whether the kernel enforces AppArmor profiles.
func appArmor(sys string) bool {
	text, err := os.ReadFile(sys + "/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}

// wireRegistration binds the actor of the Node; a standalone node has none. The port is where the node's API is.
func wireRegistration(node *config.Node, host *pod.Host, c *cluster, m *machine, r *containerRuntime,
	port int) supervisors.Constructor {
	if c == nil {
		return nil
	}
	k, devices, sizes := node.Kubelet, host.Devices, sizes(node)
	sizes.Devices, sizes.Forgotten, sizes.Reset = devices.Capacity, devices.Forgotten, devices.Reset
	return registration.New(registration.Options{
		Client: c.clients.Heartbeat, Watch: c.ownNode, State: &c.registered, Sizes: sizes, Desired: desiredNode(node, port),
		Machine: m.reader.Read, Images: r.client, Addresses: m.addresses.find,
		Runtime: runtimeOfNode(r.state), Network: networkProblem(node, r.client),
		UpdateFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		Random:        rand.Float64,
	})
}

// wireStatus binds the actor that writes the status of pods; a standalone node has none.
func wireStatus(node *config.Node, c *cluster, ops *cri.Operations) supervisors.Constructor {
	if c == nil {
		return nil
	}
	return status.New(status.Options{Client: c.clients.Main, Operations: ops, NodeName: node.NodeName, State: &c.statuses})
}

// wireEvents binds the actor of Events. On a standalone node it keeps them and sends none.
func wireEvents(node *config.Node, cgroupV2 bool, log *events.Log, c *cluster, busy func() bool) supervisors.Constructor {
	o := events.Options{NodeName: node.NodeName, Log: log, Busy: busy,
		AtStart: func() []messages.RecordEvent { return warningsOfNode(node, cgroupV2) }}
	if c != nil {
		o.Client, o.State = c.clients.Events.CoreV1(), &c.events
	}
	return events.New(o)
}

// cgroupV1Message is the kubelet's message of its Event CgroupV1.
const cgroupV1Message = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please " +
	"migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// warningsOfNode are the Events with which a kubelet warns of its node when it starts.
func warningsOfNode(node *config.Node, cgroupV2 bool) (out []messages.RecordEvent) {
	warn := func(reason, message string) {
		out = append(out, messages.NodeEvent(node.NodeName, v1.EventTypeWarning, reason, message, time.Now()))
	}
	if !cgroupV2 {
		warn(messages.EventCgroupV1, cgroupV1Message)
	}
	if why := translate.ResolvConfProblem(ptr.Deref(node.Kubelet.ResolverConfig, ""), node.Kubelet.ClusterDomain); why != "" {
		warn(messages.EventResolvConf, why)
	}
	return out
}
