package translate

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	minShares    = 2 // the kernel's bounds of cpu.shares (kernel/sched/sched.h)
	maxShares    = 262144
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds (kernel/sched/core.c)
)

// NewContainerResources is the container's limits as the runtime is to set them,
// at creation and for UpdateContainerResources.
func NewContainerResources(pod *v1.Pod, container *v1.Container, node NodeFacts) *runtimeapi.LinuxContainerResources {
	has := EffectiveResources(pod.Spec.Resources, container.Resources)
	r := linuxResources(node, has)
	r.OomScoreAdj = oomScoreAdj(pod, container, node.MemoryCapacity)
	r.HugepageLimits = hugepageLimits(pod, container, node.HugePageSizes)
	setSwap(r, pod, container, node)
	setMemoryQoS(r, pod, container, node)
	return r
}

// EffectiveResources are what a container gets: its own, with the pod's limits of cpu and memory where it has none (KEP-2837).
// The result shares what it can with the container's.
func EffectiveResources(pod *v1.ResourceRequirements, container v1.ResourceRequirements) v1.ResourceRequirements {
	if pod == nil {
		return container
	}
	limits := v1.ResourceList{}
	maps.Copy(limits, container.Limits)
	for _, name := range ComputeResources {
		own, of := limits[name], pod.Limits[name]
		if own.IsZero() && !of.IsZero() {
			limits[name] = of
		}
	}
	container.Limits = limits
	return container
}

// sandboxResources is what the pod's containers may use together, for runtimes
// that size a virtual machine by it, and overhead what the sandbox itself needs.
func sandboxResources(pod *v1.Pod, node NodeFacts) (resources, overhead *runtimeapi.LinuxContainerResources) {
	// The requests and limits of the pod's containers, with the pod's own above them (KEP-2837).
	without := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	resources = linuxResources(node, v1.ResourceRequirements{
		Requests: resourcehelper.PodRequests(pod, without), Limits: resourcehelper.PodLimits(pod, without),
	})
	if pod.Spec.Overhead == nil {
		return resources, &runtimeapi.LinuxContainerResources{}
	}
	return resources, linuxResources(node, v1.ResourceRequirements{Requests: pod.Spec.Overhead, Limits: pod.Spec.Overhead})
}

// UpdatedSandboxResources is the same for a sandbox that is there. What its cgroup does not limit is not limited: a container
// without a limit may have more than the others' add up to.
func UpdatedSandboxResources(pod *v1.Pod, node NodeFacts) (resources, overhead *runtimeapi.LinuxContainerResources) {
	resources, overhead = sandboxResources(pod, node)
	if !LimitsPod(pod, v1.ResourceCPU) {
		resources.CpuPeriod, resources.CpuQuota = 0, 0
	}
	if !LimitsPod(pod, v1.ResourceMemory) {
		resources.MemoryLimitInBytes = 0
	}
	return resources, overhead
}

// linuxResources converts cpu and memory. An absent cpu request is the limit;
// the API server does so too, but not for pods from elsewhere.
func linuxResources(node NodeFacts, has v1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	cpuRequest, ok := has.Requests[v1.ResourceCPU]
	if !ok {
		cpuRequest = *has.Limits.Cpu()
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(CPUShares(cpuRequest.MilliValue())), //nolint:gosec // at most maxShares
		MemoryLimitInBytes: has.Limits.Memory().Value(),
	}
	if node.CPUCFSQuota {
		r.CpuPeriod = node.CPUCFSQuotaPeriod.Microseconds()
		r.CpuQuota = CPUQuota(has.Limits.Cpu().MilliValue(), r.CpuPeriod)
	}
	if node.CgroupV2 && !node.SingleProcessOOMKill {
		// The kernel ends all processes of the container together (cgroup-v2.rst).
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// CPUShares is the weight of cgroup v1 for so many thousandths of a processor; runtimes convert it for v2. Nothing asked for
// is the least weight, as the kernel's own default would be half a processor's.
func CPUShares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

// CPUQuota is in microseconds in each period of so many microseconds; 0 thousandths are no limit, and 0.
func CPUQuota(milliCPU, period int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period/1000, minQuota)
}

// hugepageLimits forbids every page size of the machine that the container, or
// its pod, has no limit for.
func hugepageLimits(pod *v1.Pod, container *v1.Container, sizes []string) []*runtimeapi.HugepageLimit {
	bytes := map[string]uint64{}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		bytes = HugePages(pod.Spec.Resources.Limits)
	}
	maps.Copy(bytes, HugePages(container.Resources.Limits))
	var limits []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: size, Limit: bytes[size]})
	}
	return limits
}

// HugePages are the bytes of huge pages in the list, by page size in the spelling of hugetlb ("2MB").
func HugePages(list v1.ResourceList) map[string]uint64 {
	bytes := map[string]uint64{}
	for name, quantity := range list {
		text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		// Names that are no size, and negative quantities, were refused when the pod was validated.
		if size, err := resource.ParseQuantity(text); err == nil {
			bytes[HugePageUnit(size.Value())] = uint64(max(quantity.Value(), 0))
		}
	}
	return bytes
}

// HugePageUnit writes a page size in bytes as the hugetlb cgroup's files do: 2MB, 1GB.
func HugePageUnit(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	for len(units) > 1 && bytes > 0 && bytes%1024 == 0 {
		bytes /= 1024
		units = units[1:]
	}
	return strconv.FormatInt(bytes, 10) + units[0]
}

// setSwap gives a burstable container its part of the node's swap where the
// configuration allows it, and all others none (KEP-2400).
func setSwap(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, container *v1.Container, node NodeFacts) {
	if !node.SwapController {
		return
	}
	if !node.CgroupV2 {
		// v1 counts memory and swap together: the same limit leaves no swap.
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
		return
	}
	swap := int64(0)
	if node.LimitedSwap && MaySwap(pod, container) {
		request := memoryRequest(container)
		if node.MemoryCapacity > 0 && request <= node.MemoryCapacity {
			swap = int64(float64(request) / float64(node.MemoryCapacity) * float64(node.SwapCapacity))
		}
	}
	setUnified(r, "memory.swap.max", swap)
}

func setUnified(r *runtimeapi.LinuxContainerResources, file string, bytes int64) {
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	r.Unified[file] = strconv.FormatInt(bytes, 10)
}

// setMemoryQoS has the kernel slow a container down before it meets its limit and, where that is configured, keep
// for it what it asks for: by all means in a guaranteed pod, and else as long as there is other memory to take
// (KEP-2570).
func setMemoryQoS(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, container *v1.Container, node NodeFacts) {
	if !node.MemoryQoS {
		return
	}
	request, limit := memoryRequest(container), container.Resources.Limits.Memory().Value()
	switch {
	case !node.ProtectMemory || request == 0:
		setUnified(r, "memory.min", 0)
		setUnified(r, "memory.low", 0)
	case QOSClass(pod) == v1.PodQOSGuaranteed:
		setUnified(r, "memory.min", request)
	default:
		setUnified(r, "memory.low", request)
	}
	if request == limit {
		return
	}
	if limit == 0 {
		limit = node.PodMemory
	}
	page := int64(os.Getpagesize())
	high := int64(float64(request)+float64(limit-request)*node.ThrottlingFactor) / page * page
	if high > request {
		setUnified(r, "memory.high", high)
	}
}

// MaySwap says that the container gets a part of the node's swap where the configuration gives any (KEP-2400).
func MaySwap(pod *v1.Pod, container *v1.Container) bool {
	request, limit := container.Resources.Requests.Memory(), container.Resources.Limits.Memory()
	return !IsCritical(pod) && QOSClass(pod) == v1.PodQOSBurstable && request.Cmp(*limit) != 0
}

// checkQuotaPeriod refuses what the kernel would.
func checkQuotaPeriod(node NodeFacts) error {
	if node.CPUCFSQuota && (node.CPUCFSQuotaPeriod < time.Millisecond || node.CPUCFSQuotaPeriod > time.Second) {
		return fmt.Errorf("cpuCFSQuotaPeriod %s is not between 1ms and 1s", node.CPUCFSQuotaPeriod)
	}
	return nil
}

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
	for c := range containersOf(&pod.Spec) {
		if q, ok := c.Resources.Limits[name]; !ok || q.IsZero() {
			return false
		}
	}
	return true
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
