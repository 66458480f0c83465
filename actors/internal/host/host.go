// Package host is what the actors of pods and containers know of the machine that they run on: the runtime, the
// folders, the node's facts. It is made once, before the tree, and only read.
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

	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
)

// Host is the machine. Nothing in it is set after it was made.
type Host struct {
	CRI  *cri.Client
	Ops  *cri.Operations
	Node translate.NodeFacts
	// DNS lacks the node's own configuration and its addresses, which are read for each sandbox: they come and change with the
	// network.
	DNS translate.DNSFacts
	// ResolvConf is the file with it; empty: pods get none of it.
	ResolvConf string
	// RootDir has the pods' folders, e.g. /var/lib/kubelet.
	RootDir string
	// NodeName is this node's name.
	NodeName string
	// IPs are the node's addresses now, the primary one first; nil: none. It does not wait, and what it gives is not changed.
	IPs func() []string
	// IPsUnsettled: whether these may still change, since the Node's are not known from the API server yet; nil: never.
	IPsUnsettled func() bool
	// Allocatable is what pods can have of the machine: what the downward API says of limits that are not set.
	Allocatable v1.ResourceList
	// Objects are the ConfigMaps, Secrets, Services and RuntimeClasses; nil where this node has none.
	Objects *objectset.Board
	// Devices are what device plugins gave to containers; nil: none.
	Devices *devices.Manager
	// RequestTimeout bounds one CRI call.
	RequestTimeout time.Duration
	// Standalone: the node is in no cluster. That it has no clusterDNS is a note on the node, not a warning of each pod.
	Standalone bool
	// Events: whether Kubernetes Events are recorded.
	Events bool
	// Hooks bounds the hooks of containers that run at a time: they take no slots of the CRI client.
	Hooks Places
	// Abilities asks what the runtime says of itself by now; nil stands for a runtime that says nothing.
	Abilities func() Abilities
}

// Abilities are what a pod may ask for and only some runtimes do. The others pass over it in silence, so that it must not
// be asked of them.
type Abilities struct {
	// RecursiveReadOnlyMounts is by the runtime's handlers; "" is the default one (KEP-3857).
	RecursiveReadOnlyMounts  map[string]bool
	SupplementalGroupsPolicy bool // KEP-3619
	// SystemdCgroups says that it makes cgroups through systemd, and takes the names of slices for them.
	SystemdCgroups bool
}

// NodeIPs are the node's addresses now; none where they are not known.
func (h *Host) NodeIPs() []string {
	if h.IPs == nil {
		return nil
	}
	return h.IPs()
}

// Unsettled says that the node's addresses may be others yet.
func (h *Host) Unsettled() bool { return h.IPsUnsettled != nil && h.IPsUnsettled() }

// Can is what the runtime can do.
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

// SandboxConfig is the pod's sandbox as the runtime is asked for it, within a cgroup in the runtime's spelling.
func (h *Host) SandboxConfig(pod *v1.Pod, attempt uint32, cgroupParent string) (*runtimeapi.PodSandboxConfig, error) {
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
		translate.SandboxParams{Attempt: attempt, DNS: dns, CgroupParent: cgroupParent})
}

// dns is the pod's resolver configuration, and what had to be left out of it.
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

// DNSWarnings are what had to be left out of the pod's resolver configuration, as it would be made now.
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
		err = os.Chmod(dir, 0o755) //nolint:gosec // those who collect logs are seldom root
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

// Ignore is nil where the object is gone already, which is what was wanted.
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
