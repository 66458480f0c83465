package config

import (
	"cmp"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Container restart back-off as the kubelet counts it. The reduced pair is chosen by the feature gate
// ReduceDefaultCrashLoopBackOffDecay (KEP-4603).
const (
	crashBackOffInitial        = 10 * time.Second
	crashBackOffMax            = 300 * time.Second
	reducedCrashBackOffInitial = time.Second
	reducedCrashBackOffMax     = 60 * time.Second
)

// CrashLoopBackOff returns the first delay before a crashed container starts again and the cap of its doubling.
// crashLoopBackOff.maxContainerRestartPeriod is the cap while the gate KubeletCrashLoopBackOffMax is on; a cap below the
// first delay lowers that too.
func (n *Node) CrashLoopBackOff() (initial, limit time.Duration) {
	initial, limit = crashBackOffInitial, crashBackOffMax
	if n.FeatureEnabled("ReduceDefaultCrashLoopBackOffDecay") {
		initial, limit = reducedCrashBackOffInitial, reducedCrashBackOffMax
	}
	if own := n.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; own != nil && n.FeatureEnabled("KubeletCrashLoopBackOffMax") {
		limit = own.Duration
	}
	return min(initial, limit), limit
}

// idsUnit is the number of user IDs of which userNamespaces.idsPerPod is a multiple, and its default.
const idsUnit = 65536

// IDsPerPod returns the number of user and group IDs of a pod with a user namespace of its own (userNamespaces.idsPerPod).
func (n *Node) IDsPerPod() uint32 {
	if own := n.Kubelet.UserNamespaces; own != nil && own.IDsPerPod != nil {
		return uint32(*own.IDsPerPod) //nolint:gosec // validated
	}
	return idsUnit
}

// ObjectPoll returns how often ConfigMaps and Secrets that pods name are read from the API server; 0 means that they are
// watched (configMapAndSecretChangeDetectionStrategy). Cache and Get both read them once a minute, like a kubelet whose Node
// sets no other time.
func (n *Node) ObjectPoll() time.Duration {
	if n.Kubelet.ConfigMapAndSecretChangeDetectionStrategy == kubeletconfig.WatchChangeDetectionStrategy {
		return 0
	}
	return time.Minute
}

// ContainerLogMaxSize is the size in bytes at which a container's log is rotated. Negative: never.
func (n *Node) ContainerLogMaxSize() int64 {
	q, err := resource.ParseQuantity(n.Kubelet.ContainerLogMaxSize)
	if err != nil { // Load has validated it; a Node built by hand gets no rotation.
		return -1
	}
	return q.Value()
}

// ContainerLogMonitorInterval is between looks at the sizes of containers' logs.
func (n *Node) ContainerLogMonitorInterval() time.Duration {
	return cmp.Or(orZero(n.Kubelet.ContainerLogMonitorInterval).Duration, 10*time.Second)
}

// SerialImagePulls reports whether images are pulled one at a time.
func (n *Node) SerialImagePulls() bool {
	return n.Kubelet.SerializeImagePulls == nil || *n.Kubelet.SerializeImagePulls
}

// MaxParallelImagePulls is how many pulls may run at once: 1 when pulls are serial, 0 for no limit.
func (n *Node) MaxParallelImagePulls() int {
	if n.SerialImagePulls() {
		return 1
	}
	return int(orZero(n.Kubelet.MaxParallelImagePulls))
}

// ImageEndpoint is the CRI image service's address; the runtime's own where none was given.
func (n *Node) ImageEndpoint() string {
	return cmp.Or(n.Kubelet.ImageServiceEndpoint, n.Kubelet.ContainerRuntimeEndpoint)
}

// RegisterNode reports whether the Node object is created at the API server.
func (n *Node) RegisterNode() bool { return n.Kubelet.RegisterNode == nil || *n.Kubelet.RegisterNode }

// Verbosity is --v. At 0, only messages that an operator always needs are logged.
func (n *Node) Verbosity() int { return int(n.Kubelet.Logging.Verbosity) }

// masked stands where a credential would.
const masked = "<masked>"

// PresentableURL removes user, password, query and fragment from a URL; any of them may be a credential.
func PresentableURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" { // it may be anything
		return masked
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		return shown.String() + "?" + masked
	}
	return shown.String()
}

// Presentable returns a copy of the configuration for display. Possible credentials in the manifest URL and the values of its
// headers are masked.
func (n *Node) Presentable() *KubeletConfiguration {
	shown := n.Kubelet.DeepCopy()
	for header := range shown.StaticPodURLHeader {
		shown.StaticPodURLHeader[header] = []string{masked}
	}
	if shown.StaticPodURL != "" {
		shown.StaticPodURL = PresentableURL(shown.StaticPodURL)
	}
	return shown
}
