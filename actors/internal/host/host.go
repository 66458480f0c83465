// Package host describes the machine to the actors of pods and containers: the runtime, the folders and the node's addresses.
// A Host is made once, before the tree, and is read-only.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/cpus"
	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/dra"
	"github.com/playlet-dev/playlet/actors/internal/numamemory"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/actors/internal/userns"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
)

// Host is the machine. Nothing in it is set after it was made.
type Host struct {
	CRI  *cri.Client
	Ops  *cri.Operations
	Node translate.NodeFacts
	// Started gets the facts that starts have read, for the runtime's actor; nil: it reads them again.
	Started *facts.StartFacts
	// DNS lacks the node's own configuration and its addresses, which are read for each sandbox: they come and change with the
	// network.
	DNS translate.DNSFacts
	// ResolvConf is the file with it; empty: pods get none of it.
	ResolvConf string
	// RootDir has the pods' folders, e.g. /var/lib/kubelet.
	RootDir string
	// NodeName is this node's name.
	NodeName string
	// IPs returns the node's present addresses, the primary one first; nil means none. It does not block, and callers must
	// not change the result.
	IPs func() []string
	// IPsUnsettled: whether these may still change, since the Node's are not known from the API server yet; nil: never.
	IPsUnsettled func() bool
	// Allocatable is the machine's capacity for pods. The downward API uses it for limits that are not set.
	Allocatable v1.ResourceList
	// Objects are the ConfigMaps, Secrets, Services and RuntimeClasses; nil where this node has none.
	Objects *objectset.Board
	// Devices manages the devices that plugins gave to containers; nil means none.
	Devices *devices.Manager
	// Claims manages the pods' ResourceClaims; nil means that the node has no API server.
	Claims *dra.Manager
	// CPUs are the CPUs that containers have to themselves; nil means none.
	CPUs *cpus.Manager
	// Memory is the memory of containers by NUMA node; nil means that they use all nodes.
	Memory *numamemory.Manager
	// Alignment is the topology manager's policy.
	Alignment topology.Policy
	// Users are the ranges of pods with user namespaces of their own; nil means that this node has none.
	Users *userns.Ranges
	// RequestTimeout bounds one CRI call.
	RequestTimeout time.Duration
	// Standalone: the node is in no cluster. That it has no clusterDNS is a note on the node, not a warning of each pod.
	Standalone bool
	// Events: whether Kubernetes Events are recorded.
	Events bool
	// Absence returns when the runtime last answered a check, and how long it has been away in all; nil: unknown.
	Absence func() (answered time.Time, away time.Duration)
	// Hooks bounds the hooks of containers that run at a time: they take no slots of the CRI client.
	Hooks Places
	// Abilities returns the abilities that the runtime reports; nil means none.
	Abilities func() Abilities
}

// Abilities are features that only some runtimes have. Other runtimes ignore such requests silently, so that callers must
// check first.
type Abilities struct {
	// RecursiveReadOnlyMounts is by the runtime's handlers; "" is the default one (KEP-3857).
	RecursiveReadOnlyMounts  map[string]bool
	UserNamespaces           map[string]bool // by handlers, too (KEP-127)
	SupplementalGroupsPolicy bool            // KEP-3619
	// SystemdCgroups is true if the runtime makes cgroups through systemd, with names of slices.
	SystemdCgroups bool
}

// NodeIPs are the node's addresses now; none where they are not known.
func (h *Host) NodeIPs() []string {
	if h.IPs == nil {
		return nil
	}
	return h.IPs()
}

// Unsettled reports whether the node's addresses may still change.
func (h *Host) Unsettled() bool { return h.IPsUnsettled != nil && h.IPsUnsettled() }

// Can returns the abilities of the runtime.
func (h *Host) Can() Abilities {
	if h.Abilities == nil {
		return Abilities{}
	}
	return h.Abilities()
}

// PodDir is the folder of a pod's volumes and files.
func (h *Host) PodDir(uid string) string { return filepath.Join(h.RootDir, "pods", uid) }

// ContainerDir is the folder of a container's own files, its termination log among them.
func (h *Host) ContainerDir(uid, name string) string {
	return filepath.Join(h.PodDir(uid), "containers", name)
}

// SandboxConfig is the pod's sandbox as the runtime is asked for it, within a cgroup in the runtime's spelling. Without users the
// pod has the host's.
func (h *Host) SandboxConfig(pod *v1.Pod, attempt uint32, cgroupParent string, users *runtimeapi.UserNamespace) (
	*runtimeapi.PodSandboxConfig, error) {
	if s := pod.Spec.SecurityContext; s != nil && s.SupplementalGroupsPolicy != nil &&
		*s.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict && !h.Can().SupplementalGroupsPolicy {
		return nil, &translate.ConfigError{
			Err: errors.New("securityContext.supplementalGroupsPolicy is Strict, which this container runtime cannot do"),
		}
	}
	dns, _, err := h.dns(pod)
	if err != nil {
		return nil, err
	}
	return translate.NewSandboxConfig(pod, h.Node,
		translate.SandboxParams{Attempt: attempt, DNS: dns, CgroupParent: cgroupParent, Users: users})
}

// dns returns the pod's resolver configuration, and a warning for each omission.
func (h *Host) dns(pod *v1.Pod) (*runtimeapi.DNSConfig, []translate.DNSWarning, error) {
	facts := h.DNS
	facts.NodeIPs = h.NodeIPs()
	var err error
	if facts.Host, err = translate.ReadResolvConf(h.ResolvConf); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("the node's resolver configuration: %w", err)
	}
	config, warnings := translate.NewDNSConfig(pod, facts)
	return config, warnings, nil
}

// DNSWarnings returns a warning for each omission in the pod's resolver configuration, as it would be made now.
func (h *Host) DNSWarnings(pod *v1.Pod) []translate.DNSWarning {
	_, warnings, err := h.dns(pod)
	if err != nil {
		return nil // making a sandbox reports it
	}
	return slices.DeleteFunc(warnings, func(w translate.DNSWarning) bool {
		return h.Standalone && w.Reason == translate.MissingClusterDNS
	})
}

// MakeLogDir makes the folder of logs: of all pods, of one, or of one of its containers. All users may read it, whatever the
// umask is; one that is there keeps its mode.
func MakeLogDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // log collectors are seldom root
	}
	if err != nil {
		return fmt.Errorf("log folder: %w", err)
	}
	return nil
}

// Reap is the deadline of an operation of several CRI calls.
func (h *Host) Reap(calls int) time.Duration {
	return time.Duration(calls) * (h.RequestTimeout + 5*time.Second)
}

// Ignore returns nil if err reports that the object does not exist.
func Ignore(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// Joined turns a panic in an operation into one of the caller, so that it is counted as the actor's.
func Joined(err error) error {
	if p, ok := errors.AsType[*cri.PanicError](err); ok {
		panic(p)
	}
	return err
}
