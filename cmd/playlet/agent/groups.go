package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/config"
)

// podsSlice holds all containers where systemd makes the cgroups and pods have none of their own: a path of cgroupfs, which
// is the runtime's default, is nothing to systemd.
const podsSlice = "kubepods.slice"

// groupTree is the tree of cgroups as the configuration has it; nil where pods have no cgroups of their own.
func (a *Agent) groupTree() *resources.Tree {
	k, facts := a.node.Kubelet, a.host.Node
	if !ptr.Deref(k.CgroupsPerQOS, true) {
		return nil
	}
	return &resources.Tree{
		Groups: a.groups, Root: resources.ParseName(k.CgroupRoot), Systemd: a.systemdGroups,
		Settings: resources.Settings{
			CPUCFSQuota: facts.CPUCFSQuota, CPUCFSQuotaPeriod: facts.CPUCFSQuotaPeriod,
			PodPIDsLimit:  ptr.Deref(k.PodPidsLimit, -1),
			HugePageSizes: facts.HugePageSizes, EnforcePods: slices.Contains(k.EnforceNodeAllocatable, "pods"),
			Reserved: reserved(k.KubeReserved, k.SystemReserved), Reservations: reservations(k), QOSReserved: qosReserved(a.node),
			MemoryQoS: facts.MemoryQoS, ProtectMemory: facts.ProtectMemory,
		},
		Capacity: func() (resources.Capacity, error) {
			return resources.ReadCapacity("/sys", "/proc", facts.MemoryCapacity)
		},
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

// systemdGroups says that systemd makes the cgroups.
func (a *Agent) systemdGroups() bool { return a.host.Can().SystemdCgroups }

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

// qosReserved is the percentage of memory in qosReserved; nil: none. What is no percentage was refused when the configuration was
// read.
func qosReserved(node *config.Node) *int64 {
	digits, found := strings.CutSuffix(node.Kubelet.QOSReserved[string(v1.ResourceMemory)], "%")
	percent, err := strconv.ParseInt(digits, 10, 64)
	if !found || err != nil || !node.FeatureEnabled("QOSReserved") {
		return nil
	}
	return &percent
}

// reserved is the sum of what is kept from pods. Quantities that are none were refused when the configuration was read.
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

// entered says that this process is in that cgroup. Entering it again would write to those above it each time.
func entered(name string) bool {
	text, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && strings.Contains(string(text), ":"+resources.ParseName(name).Cgroupfs()+"\n")
}

// place moves processes to where they are to be. An agent with a cgroup of its own is no part of the system's, although it may be
// in the root of a hierarchy that it was not moved in.
func (a *Agent) place(context.Context) error {
	var errs []error
	own := a.node.Kubelet.KubeletCgroups
	if own != "" && !entered(own) {
		errs = append(errs, a.groups.Enter(resources.ParseName(own), os.Getpid()))
	}
	if system := a.node.Kubelet.SystemCgroups; system != "" {
		ungrouped, err := a.groups.Ungrouped()
		if own != "" {
			ungrouped = slices.DeleteFunc(ungrouped, func(pid int) bool { return pid == os.Getpid() })
		}
		errs = append(errs, err, a.groups.Enter(resources.ParseName(system), ungrouped...))
	}
	return errors.Join(errs...)
}
