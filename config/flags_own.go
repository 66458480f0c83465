package config

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

const (
	askEviction = "kept; container garbage collection is better steered by --eviction-hard and --eviction-soft"
	cadvisorNow = "ignored: it belonged to an embedded cAdvisor that Playlet does not have"
)

func onNode(at func(*Node) *string) binder {
	return toString(func(t *target) *string { return at(t.node) })
}

// ownRows are the flags that have no field in KubeletConfiguration: what differs from node to node, or says where the
// configuration is.
var ownRows = []flagRow{
	{name: "config", bind: onNode(func(n *Node) *string { return &n.ConfigFile }),
		usage: "KubeletConfiguration `file` (kubelet.config.k8s.io/v1beta1, YAML or JSON). Flags given on the command line override it. A folder here has its meaning of old, a manifest folder"},
	{name: "config-dir", bind: onNode(func(n *Node) *string { return &n.ConfigDir }),
		usage: "`folder` of drop-ins that override --config: files ending in .conf, applied in lexical order, sub-folders included"},
	{name: "kubeconfig", bind: onNode(func(n *Node) *string { return &n.KubeconfigPath }),
		usage: "`file` that says how to reach the API server. Without it the node stands alone"},
	{name: "bootstrap-kubeconfig", bind: onNode(func(n *Node) *string { return &n.BootstrapKubeconfigPath }),
		usage: "kubeconfig `file` used to request a client certificate while the file of --kubeconfig does not exist"},
	{name: "hostname-override", bind: onNode(func(n *Node) *string { return &n.hostname }),
		usage: "`name` of this node in place of its host name"},
	{name: "node-ip", bind: onNode(func(n *Node) *string { return &n.nodeIP }),
		usage: "`address` of the node, or two of different families separated by a comma; :: or 0.0.0.0 asks for that family's default address"},
	{name: "node-labels", bind: toValue(func(t *target) pflag.Value { return (*cliflag.ConfigurationMap)(&t.node.NodeLabels) }),
		usage: "`key=value` labels, comma-separated, put on the Node object at registration"},
	{name: "root-dir", bind: onNode(func(n *Node) *string { return &n.RootDir }),
		usage: "`folder` for pods, volumes and plugins"},
	{name: "cert-dir", bind: onNode(func(n *Node) *string { return &n.CertDir }),
		usage: "`folder` for certificates, unless --tls-cert-file and --tls-private-key-file name them"},
	{name: "cloud-provider", bind: onNode(func(n *Node) *string { return &n.CloudProvider }),
		usage: "`kind` of cloud: external when a cloud controller initializes the node; empty when there is none"},
	{name: "runtime-cgroups", bind: onNode(func(n *Node) *string { return &n.RuntimeCgroups }),
		usage: "absolute `cgroup` of the container runtime"},
	{name: "image-credential-provider-config", bind: onNode(func(n *Node) *string { return &n.ImageCredentialProviderConfig }),
		usage: "`path` of the configuration of credential provider plugins, a file or a folder of files"},
	{name: "image-credential-provider-bin-dir", bind: onNode(func(n *Node) *string { return &n.ImageCredentialProviderBinDir }),
		usage: "`folder` of the credential provider plugins"},
	{name: "lock-file", bind: onNode(func(n *Node) *string { return &n.LockFile }),
		usage: "`file` to hold a lock on while running"},
	{name: "exit-on-lock-contention", bind: toBool(func(t *target) *bool { return &t.node.ExitOnLockContention }),
		usage: "exit when another process opens the lock file"},
	{name: "admin-socket", bind: onNode(func(n *Node) *string { return &n.AdminSocket }),
		usage: "unix `socket` on which playlet's sub-commands reach the agent"},
	{name: "object-dir", bind: onNode(func(n *Node) *string { return &n.ObjectDir }),
		usage: "`folder` of manifests of ConfigMaps, Secrets and RuntimeClasses that static pods of this node may refer to; without it, there are none. For root's eyes only (chmod 700)"},
	{name: "log-links-dir", bind: onNode(func(n *Node) *string { return &n.LogLinksDir }),
		usage: "`folder` with a link to the log of each container, named <pod>_<namespace>_<container>-<id>.log, for log shippers; empty: none"},
	{name: "housekeeping-interval", bind: toDuration(func(t *target) *time.Duration { return &t.node.HousekeepingInterval }),
		usage: "how often container statistics are sampled"},

	{name: "minimum-container-ttl-duration", bind: toDuration(func(t *target) *time.Duration { return &t.node.MinimumContainerTTL }),
		usage: "least age of a dead container before it is collected", warning: askEviction},
	{name: "maximum-dead-containers-per-container", bind: toInt32(func(t *target) *int32 { return &t.node.MaxDeadContainersPerContainer }),
		usage: "dead instances to keep of each container", warning: askEviction},
	{name: "maximum-dead-containers", bind: toInt32(func(t *target) *int32 { return &t.node.MaxDeadContainers }),
		usage: "dead containers to keep on the node; negative for no limit", warning: askEviction},
	{name: "experimental-mounter-path", bind: onNode(func(n *Node) *string { return &n.MounterPath }),
		usage: "`program` that mounts in place of mount(8)", warning: "a CSI driver is what replaces it"},
	{name: "experimental-allocatable-ignore-eviction", bind: toBool(func(t *target) *bool { return &t.node.AllocatableIgnoresEviction }),
		usage: "leave hard eviction thresholds out of node allocatable", warning: "nothing replaces it, and Kubernetes means to remove it"},

	{name: "application-metrics-count-limit", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "boot-id-file", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "container-hints", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "containerd", bind: nowhere, usage: "no effect", warning: cadvisorNow + "; the runtime is named by --container-runtime-endpoint"},
	{name: "containerd-namespace", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "enable-load-reader", bind: nowhereBool, usage: "no effect", warning: cadvisorNow},
	{name: "event-storage-age-limit", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "event-storage-event-limit", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "global-housekeeping-interval", bind: nowhere, usage: "no effect", warning: cadvisorNow + "; sampling follows --housekeeping-interval"},
	{name: "log-cadvisor-usage", bind: nowhereBool, usage: "no effect", warning: cadvisorNow},
	{name: "machine-id-file", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-buffer-duration", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-db", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-host", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-password", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-secure", bind: nowhereBool, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-table", bind: nowhere, usage: "no effect", warning: cadvisorNow},
	{name: "storage-driver-user", bind: nowhere, usage: "no effect", warning: cadvisorNow},
}
