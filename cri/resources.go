package cri

import (
	"fmt"
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
// at creation and for UpdateContainerResources. exclusiveCPUs says that it has
// processors of its own, on which a quota would only throttle it.
func NewContainerResources(pod *v1.Pod, container *v1.Container, node NodeFacts,
	exclusiveCPUs bool) *runtimeapi.LinuxContainerResources {
	has := EffectiveResources(pod.Spec.Resources, container.Resources)
	r := linuxResources(node, has.Requests, *has.Limits.Cpu(), *has.Limits.Memory(), exclusiveCPUs)
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
	for _, name := range ComputeResources {
		own, of := container.Limits[name], pod.Limits[name]
		if own.IsZero() && !of.IsZero() {
			limits[name] = of
		}
	}
	for name, own := range container.Limits {
		if _, inherited := limits[name]; !inherited {
			limits[name] = own
		}
	}
	container.Limits = limits
	return container
}

// sandboxResources is what the pod's containers may use together, for runtimes
// that size a virtual machine by it, and overhead what the sandbox itself needs.
func sandboxResources(pod *v1.Pod, node NodeFacts, exclusiveCPUs bool) (resources, overhead *runtimeapi.LinuxContainerResources) {
	limits := resourcehelper.PodLimits(pod, withoutOverhead)
	resources = linuxResources(node, resourcehelper.PodRequests(pod, withoutOverhead), *limits.Cpu(), *limits.Memory(),
		exclusiveCPUs)
	if pod.Spec.Overhead == nil {
		return resources, &runtimeapi.LinuxContainerResources{}
	}
	cpu := *pod.Spec.Overhead.Cpu()
	requests := v1.ResourceList{v1.ResourceCPU: cpu}
	return resources, linuxResources(node, requests, cpu, *pod.Spec.Overhead.Memory(), false)
}

// updatedSandboxResources is the same for a sandbox that is there. What its cgroup does not limit is not limited: a container
// without a limit may have more than the others' add up to.
func updatedSandboxResources(pod *v1.Pod, node NodeFacts) (resources, overhead *runtimeapi.LinuxContainerResources) {
	resources, overhead = sandboxResources(pod, node, false)
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
func linuxResources(
	node NodeFacts, requests v1.ResourceList, cpuLimit, memoryLimit resource.Quantity, exclusiveCPUs bool,
) *runtimeapi.LinuxContainerResources {
	cpuRequest, ok := requests[v1.ResourceCPU]
	if !ok {
		cpuRequest = cpuLimit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(cpuRequest.MilliValue()),
		MemoryLimitInBytes: memoryLimit.Value(),
	}
	if node.CPUCFSQuota {
		r.CpuPeriod = node.CPUCFSQuotaPeriod.Microseconds()
		r.CpuQuota = cpuQuota(cpuLimit.MilliValue(), r.CpuPeriod)
		if exclusiveCPUs {
			r.CpuQuota = -1
		}
	}
	if node.CgroupV2 && !node.SingleProcessOOMKill {
		// The kernel ends all processes of the container together (cgroup-v2.rst).
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// cpuShares is a cgroup v1 weight; runtimes convert it for v2. Nothing asked for
// is the least weight, as the kernel's own default would be half a processor's.
func cpuShares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// cpuQuota is in microseconds for each period, 0 for no limit.
func cpuQuota(milliCPU, period int64) int64 {
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
		addHugePages(bytes, pod.Spec.Resources.Limits)
	}
	addHugePages(bytes, container.Resources.Limits)
	var limits []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: size, Limit: bytes[size]})
	}
	return limits
}

func addHugePages(bytes map[string]uint64, limits v1.ResourceList) {
	for name, quantity := range limits {
		text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		// Names that are no size, and negative quantities, were refused when the pod was validated.
		if size, err := resource.ParseQuantity(text); err == nil {
			bytes[hugePageUnit(size.Value())] = uint64(max(quantity.Value(), 0))
		}
	}
}

// hugePageUnit writes a page size as the hugetlb cgroup's files do: 2MB, 1GB.
func hugePageUnit(bytes int64) string {
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
