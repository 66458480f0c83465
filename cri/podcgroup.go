package cri

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// What the cgroups of pods need of the translation of their containers, so that both count alike.

// PodRequests is what the pod asks for as a whole, its overhead included. The result is the caller's.
func PodRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// PodLimits is what the pod is limited to as a whole, its overhead included where there is a limit. The result is the
// caller's.
func PodLimits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
}

// LimitsPod says that the pod is limited in a resource as a whole: by itself, or by each of its containers.
func LimitsPod(pod *v1.Pod, name v1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q, ok := list[i].Resources.Limits[name]; !ok || q.IsZero() {
				return false
			}
		}
	}
	return true
}

// withoutOverhead has the requests and limits of the pod's containers, with the pod's own above them (KEP-2837).
var withoutOverhead = resourcehelper.PodResourcesOptions{ExcludeOverhead: true}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// CPUShares is the weight of cgroup v1 for so many thousandths of a processor, within the kernel's bounds.
func CPUShares(milliCPU int64) uint64 {
	return uint64(cpuShares(milliCPU)) //nolint:gosec // between minShares and maxShares
}

// CPUQuota is in microseconds in each period of so many microseconds; 0 thousandths are no limit, and 0.
func CPUQuota(milliCPU, period int64) int64 { return cpuQuota(milliCPU, period) }

// HugePages are the bytes of huge pages in the list, by page size in the spelling of hugetlb ("2MB").
func HugePages(list v1.ResourceList) map[string]uint64 {
	bytes := map[string]uint64{}
	addHugePages(bytes, list)
	return bytes
}

// HugePageUnit writes a page size in bytes as the hugetlb cgroup's files do: 2MB, 1GB.
func HugePageUnit(bytes int64) string { return hugePageUnit(bytes) }
