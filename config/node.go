package config

import (
	"log/slog"
	"net/netip"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// KubeletConfiguration is the versioned configuration type that the --config file holds.
type KubeletConfiguration = kubeletconfig.KubeletConfiguration

// DefaultAdminSocket is where the sub-commands find the agent.
const DefaultAdminSocket = "/run/playlet/admin.sock"

// Node is the whole configuration of the agent. Load builds it. After that it is read-only, including all that its pointers,
// maps and slices refer to, because actors share it without locks.
type Node struct {
	// Kubelet is the final KubeletConfiguration: defaults, files and flags merged, every default filled in.
	Kubelet *KubeletConfiguration

	// Flags are the command line's by name, with the values that they have by it; secrets are masked.
	Flags map[string]string
	// Args are the flags of the command line as arguments that a process in another folder can parse, without secrets. Never nil.
	Args []string

	// NodeName is --hostname-override or the machine's host name, trimmed and in lower case. Never empty.
	NodeName string
	// RootDir and CertDir are absolute.
	RootDir string
	CertDir string
	// AdminSocket is the path of the unix socket on which sub-commands reach the agent.
	AdminSocket string
	// EnableManifestSubmission takes manifests on port 10250, too, from clients that are authorized.
	EnableManifestSubmission bool
	// EnableChaos lets playlet's sub-commands break actors on purpose, over the admin socket.
	EnableChaos bool
	// ObservatoryAddress is where the observatory's page is served, "host:port"; empty: on the admin socket alone. A host that is
	// empty is the loopback.
	ObservatoryAddress string
	// AdminSocketGroup is the name or the number of a group that may use the socket; empty: the agent's own user alone.
	AdminSocketGroup string
	// ObjectDir is a folder of manifests of ConfigMaps and Secrets, absolute; empty: this node has none.
	ObjectDir string
	// LogLinksDir is a folder with a link to the log of each container, for log shippers, absolute; empty: there is none.
	LogLinksDir string
	// ConfigFile and ConfigDir are the files the configuration came from; empty where none was named.
	ConfigFile string
	ConfigDir  string

	// KubeconfigPath leads to the API server. Empty means standalone.
	KubeconfigPath string
	// BootstrapKubeconfigPath holds the credentials for requesting a client certificate when KubeconfigPath is absent.
	BootstrapKubeconfigPath string

	// AddressGiven is true when a flag or a file sets Kubelet.Address.
	AddressGiven bool

	// NodeIPs are the addresses of --node-ip: none, one, or two of different families. The unspecified address of a
	// family ("::", "0.0.0.0") stands alone and asks for that family's default address.
	NodeIPs []netip.Addr
	// NodeLabels are put on the Node object at registration.
	NodeLabels map[string]string
	// CloudProvider is empty or "external"; in-tree providers are gone.
	CloudProvider string

	// RuntimeCgroups is the cgroup the container runtime runs in, for its statistics.
	RuntimeCgroups string
	// ImageCredentialProviderConfig is a file or a folder, ImageCredentialProviderBinDir the folder of its plugins.
	ImageCredentialProviderConfig string
	ImageCredentialProviderBinDir string

	// MinimumContainerTTL is the minimum age of a dead container before it is collected.
	MinimumContainerTTL time.Duration
	// MaxDeadContainersPerContainer is how many dead instances of one container are kept. Negative: no limit.
	MaxDeadContainersPerContainer int32
	// MaxDeadContainers is how many dead containers are kept on the node. Negative: no limit.
	MaxDeadContainers int32
	// EvictStaticPods has static pods evicted as others are, unless their priority is critical.
	EvictStaticPods bool
	// AllocatableIgnoresEviction leaves the hard eviction thresholds out of node allocatable.
	AllocatableIgnoresEviction bool

	// LockFile is held while the agent runs; ExitOnLockContention ends the agent when someone else opens it.
	LockFile             string
	ExitOnLockContention bool

	// HousekeepingInterval is how often container statistics are sampled.
	HousekeepingInterval time.Duration
	// CAdvisorPort is the port of cAdvisor's pages and API, which old kubelets served on 4194. 0: not served.
	CAdvisorPort int32

	// CNIBinDirs and CNIConfDir are for the doctor, and for the agent's diagnosis of the network with a runtime that does not
	// report its folders. The runtime alone decides which are used.
	CNIBinDirs []string
	CNIConfDir string

	// The values of --register-schedulable, --hostname-override and --node-ip, until settle evaluates them.
	schedulable bool
	hostname    string
	nodeIP      string

	gates map[string]bool
	// logLevel is the level of the loggers. It is the only field that may change, see SetVerbosity.
	logLevel slog.LevelVar
}

// newNode returns a Node with the defaults of everything that is not part of KubeletConfiguration.
func newNode() *Node {
	return &Node{
		RootDir:                       "/var/lib/kubelet",
		CertDir:                       "/var/lib/kubelet/pki", // does not follow --root-dir, in the kubelet neither
		AdminSocket:                   DefaultAdminSocket,
		LogLinksDir:                   "/var/log/containers", // does not follow podLogsDir, in the kubelet neither
		NodeLabels:                    map[string]string{},
		MaxDeadContainersPerContainer: 1,
		MaxDeadContainers:             -1,
		HousekeepingInterval:          10 * time.Second,
		CNIBinDirs:                    []string{"/opt/cni/bin"}, // libcni's conventional folders
		CNIConfDir:                    "/etc/cni/net.d",
		schedulable:                   true,
	}
}

// Standalone reports whether the node runs with no API server.
func (n *Node) Standalone() bool { return n.KubeconfigPath == "" }

// FeatureEnabled reports the state of a feature gate, AllAlpha and AllBeta taken into account. A name Kubernetes 1.36
// does not know is off.
func (n *Node) FeatureEnabled(name string) bool { return n.gates[name] }
