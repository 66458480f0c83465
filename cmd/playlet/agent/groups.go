package agent

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/supervisors"
)

// podsSlice holds all containers where systemd makes the cgroups and pods have none of their own: a path of cgroupfs, which
// is the runtime's default, is nothing to systemd.
const podsSlice = "kubepods.slice"

// wireResources binds the actor of the cgroups.
func wireResources(node *config.Node, host *pod.Host, groups resources.Groups, board *pods.Board) supervisors.Constructor {
	systemd := func() bool { return host.Can().SystemdCgroups } // makes the cgroups
	o := resources.Options{
		Tree: groupTree(node, host.Node, groups, systemd), Operations: host.Ops,
		Providers: []resources.Provider{host.Devices, host.CPUs, host.Memory},
		Alignment: resources.Alignment{Policy: host.Alignment, Scope: node.Kubelet.TopologyManagerScope},
		Pinning: resources.Pinner{CPUs: host.CPUs, Memory: host.Memory, Board: board, Runtime: host.CRI,
			Period: node.Kubelet.CPUManagerReconcilePeriod.Duration},
		Foreign: host.CRI.ForeignPod, NodeName: nameInCluster(node),
		Parent: func() string {
			if systemd() {
				return podsSlice
			}
			return ""
		},
	}
	if host.Claims != nil {
		o.Claims = host.Claims
	}
	return resources.New(o)
}

// groupTree is the tree of cgroups as the configuration has it; nil where pods have no cgroups of their own.
func groupTree(node *config.Node, facts translate.NodeFacts, groups resources.Groups, systemd func() bool) *resources.Tree {
	k := node.Kubelet
	if !ptr.Deref(k.CgroupsPerQOS, true) {
		return nil
	}
	return &resources.Tree{
		Groups: groups, Root: resources.ParseName(k.CgroupRoot), Systemd: systemd,
		Settings: resources.Settings{
			CPUCFSQuota: facts.CPUCFSQuota, CPUCFSQuotaPeriod: facts.CPUCFSQuotaPeriod, UnlimitedCPU: facts.UnlimitedCPU,
			PodPIDsLimit:  ptr.Deref(k.PodPidsLimit, -1),
			HugePageSizes: facts.HugePageSizes, EnforcePods: slices.Contains(k.EnforceNodeAllocatable, "pods"),
			Reserved: reserved(k.KubeReserved, k.SystemReserved), Reservations: reservations(k), QOSReserved: qosReserved(node),
			MemoryQoS: facts.MemoryQoS, ProtectMemory: facts.ProtectMemory,
		},
		Capacity: func() (resources.Capacity, error) { return resources.ReadCapacity("/sys", "/proc") },
	}
}

// CheckGroups names the groups that the configuration names, that are needed, and that are not there.
func CheckGroups(node *config.Node, groups resources.Groups) error {
	if !ptr.Deref(node.Kubelet.CgroupsPerQOS, true) {
		return nil
	}
	return resources.Tree{Groups: groups, Root: resources.ParseName(node.Kubelet.CgroupRoot),
		Settings: resources.Settings{Reservations: reservations(node.Kubelet)}}.CheckGroups()
}

// reservations are the groups on which a reservation is enforced.
func reservations(k *config.KubeletConfiguration) (out []resources.Reservation) {
	for _, level := range k.EnforceNodeAllocatable {
		what, compressible := strings.CutSuffix(level, "-compressible")
		switch what {
		case "system-reserved":
			out = append(out, resources.Reservation{Setting: "systemReserved", Group: k.SystemReservedCgroup,
				Reserved: reserved(k.SystemReserved), Compressible: compressible})
		case "kube-reserved":
			out = append(out, resources.Reservation{Setting: "kubeReserved", Group: k.KubeReservedCgroup,
				Reserved: reserved(k.KubeReserved), Compressible: compressible})
		}
	}
	return out
}

// qosReserved returns the percentage of memory in qosReserved, or nil for none. Invalid percentages were rejected when the
// configuration was read.
func qosReserved(node *config.Node) *int64 {
	digits, found := strings.CutSuffix(node.Kubelet.QOSReserved[string(v1.ResourceMemory)], "%")
	percent, err := strconv.ParseInt(digits, 10, 64)
	if !found || err != nil || !node.FeatureEnabled("QOSReserved") {
		return nil
	}
	return &percent
}

// reserved returns the sum of the resources withheld from pods. Invalid quantities were rejected when the configuration was
// read.
func reserved(lists ...map[string]string) v1.ResourceList {
	sum := v1.ResourceList{}
	for _, list := range lists {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			q, err := resource.ParseQuantity(list[name])
			if err != nil {
				continue
			}
			q.Add(sum[v1.ResourceName(name)])
			sum[v1.ResourceName(name)] = q
		}
	}
	return sum
}

// entered reports whether this process is in that cgroup. Entering it again would write to its parents each time.
func entered(name string) bool {
	text, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && strings.Contains(string(text), ":"+resources.ParseName(name).Cgroupfs()+"\n")
}

// place moves processes to where they are to be. An agent with a cgroup of its own is no part of the system's, although it may be
// in the root of a hierarchy that it was not moved in.
func place(node *config.Node, groups resources.Groups) error {
	var errs []error
	own := node.Kubelet.KubeletCgroups
	if own != "" && !entered(own) {
		errs = append(errs, groups.Enter(resources.ParseName(own), os.Getpid()))
	}
	if system := node.Kubelet.SystemCgroups; system != "" {
		ungrouped, err := groups.Ungrouped()
		if own != "" {
			ungrouped = slices.DeleteFunc(ungrouped, func(pid int) bool { return pid == os.Getpid() })
		}
		errs = append(errs, err, groups.Enter(resources.ParseName(system), ungrouped...))
	}
	return errors.Join(errs...)
}

// kubepods is the path of the cgroup of all pods, as the runtime's driver of cgroups spells it; empty: they have none.
func kubepods(k *config.KubeletConfiguration, state *runtime.State) func() string {
	return func() string {
		switch {
		case !ptr.Deref(k.CgroupsPerQOS, true):
			return ""
		case abilities(state, k.CgroupDriver)().SystemdCgroups:
			return resources.PodsName(k.CgroupRoot).Systemd()
		}
		return resources.PodsName(k.CgroupRoot).Cgroupfs()
	}
}

// systemCgroups returns the cgroups of the agent, of the runtime and of the system: as configured [kubeletCgroups,
// systemCgroups], or as the kernel reports them for their processes.
func systemCgroups(node *config.Node) map[string]string {
	out := map[string]string{}
	set := func(name, configured string, pid func() int) {
		if configured == "" && pid != nil {
			configured = cgroupOf(pid())
		}
		if configured != "" {
			out[name] = configured
		}
	}
	k := node.Kubelet
	set(summary.SystemContainerKubelet, k.KubeletCgroups, unix.Getpid)
	set(summary.SystemContainerRuntime, node.RuntimeCgroups, func() int { return listenerOf(k.ContainerRuntimeEndpoint) })
	set(summary.SystemContainerMisc, k.SystemCgroups, nil)
	return out
}

// cgroupOf returns the path of a process's cgroup, or "" if it is unknown.
func cgroupOf(pid int) string {
	if pid <= 0 {
		return ""
	}
	paths, err := library.ParseCgroupFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	if library.IsCgroup2UnifiedMode() {
		return paths[""]
	}
	return paths["memory"]
}

// listenerOf returns the process that listens on the socket of a CRI endpoint, or 0 if it is unknown.
func listenerOf(endpoint string) (pid int) {
	path, err := cri.SocketPath(endpoint)
	if err != nil {
		return 0
	}
	socket, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 0
	}
	defer func() { _ = socket.Close() }() // nothing was written
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // pid stays 0
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
