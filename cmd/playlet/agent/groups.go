package agent

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// podsSlice holds all containers where systemd makes the cgroups and pods have none of their own: a path of cgroupfs, which
// is the runtime's default, is nothing to systemd.
const podsSlice = "kubepods.slice"

// groupTree is the tree of cgroups as the configuration has it; nil where pods have no cgroups of their own.
func groupTree(node *config.Node, facts cri.NodeFacts, groups resources.Groups, systemd func() bool) *resources.Tree {
	k := node.Kubelet
	if !ptr.Deref(k.CgroupsPerQOS, true) {
		return nil
	}
	return &resources.Tree{
		Groups: groups, Root: resources.ParseName(k.CgroupRoot), Systemd: systemd,
		Settings: resources.Settings{
			CPUCFSQuota: facts.CPUCFSQuota, CPUCFSQuotaPeriod: facts.CPUCFSQuotaPeriod,
			PodPIDsLimit:  ptr.Deref(k.PodPidsLimit, -1),
			HugePageSizes: facts.HugePageSizes, EnforcePods: slices.Contains(k.EnforceNodeAllocatable, "pods"),
			Reserved: reserved(k.KubeReserved, k.SystemReserved),
		},
		Capacity: func() (resources.Capacity, error) {
			return resources.ReadCapacity("/sys", "/proc", facts.MemoryCapacity)
		},
	}
}

// notEnforced are the levels of enforceNodeAllocatable of which nothing is enforced yet.
func notEnforced(node *config.Node) []string {
	return slices.DeleteFunc(slices.Clone(node.Kubelet.EnforceNodeAllocatable), func(level string) bool {
		return level == "pods" || level == "none" || level == ""
	})
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
