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
	minShares    = 2 // the kernel's limits of cpu.shares (kernel/sched/sched.h)
	maxShares    = 262144
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds (kernel/sched/core.c)
)

// NewContainerResources returns the container's limits for its creation and for UpdateContainerResources.
func NewContainerResources(pod *v1.Pod, container *v1.Container, node NodeFacts) *runtimeapi.LinuxContainerResources {
	has := EffectiveResources(pod.Spec.Resources, container.Resources)
	pin := node.pin(pod, container.Name)
	r := linuxResources(node, has)
	r.CpusetCpus, r.CpusetMems = pin.CPUs, pin.Mems
	limitTime(r, pin.Unlimited)
	r.OomScoreAdj = oomScoreAdj(pod, container, node.MemoryCapacity)
	r.HugepageLimits = hugepageLimits(pod, container, node.HugePageSizes)
	setSwap(r, pod, container, node)
	setMemoryQoS(r, pod, container, node)
	return r
}

// EffectiveResources returns a container's resources, with the pod's limits of cpu and memory as defaults (KEP-2837). The result
// may share memory with the container's.
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

// sandboxResources returns the sum of the containers' resources, for runtimes that size a virtual machine by it, and the overhead
// of the sandbox itself.
func sandboxResources(pod *v1.Pod, node NodeFacts) (resources, overhead *runtimeapi.LinuxContainerResources) {
	// The requests and limits of the pod's containers, overridden by the pod's own (KEP-2837).
	without := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	resources = linuxResources(node, v1.ResourceRequirements{
		Requests: resourcehelper.PodRequests(pod, without), Limits: resourcehelper.PodLimits(pod, without),
	})
	limitTime(resources, node.UnlimitedCPU(pod))
	if pod.Spec.Overhead == nil {
		return resources, &runtimeapi.LinuxContainerResources{}
	}
	return resources, linuxResources(node, v1.ResourceRequirements{Requests: pod.Spec.Overhead, Limits: pod.Spec.Overhead})
}

// UpdatedSandboxResources returns the resources of an existing sandbox. It only limits a resource that the pod's cgroup limits: a
// container without a limit may use more than the sum of the others' limits.
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

// limitTime removes the limit of CPU time if it is unlimited. The absence of a limit has a value, since updates keep omitted
// values.
func limitTime(r *runtimeapi.LinuxContainerResources, unlimited bool) {
	if unlimited && r.CpuPeriod > 0 {
		r.CpuQuota = -1
	}
}

// linuxResources converts cpu and memory. A missing cpu request defaults to the limit; the API server does the same, but not for
// pods of other sources.
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
		// The kernel kills all processes of the container together (cgroup-v2.rst).
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// CPUShares returns the weight of cgroup v1 for so many thousandths of a processor; runtimes convert it for v2. A request of 0 is
// the least weight, since the kernel's own default would be half a processor's.
func CPUShares(milliCPU int64) uint64 {
	return uint64(min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares))
}

// CPUQuota returns the microseconds per period of so many microseconds; 0 thousandths mean no limit, and 0.
func CPUQuota(milliCPU, period int64) int64 {
	if milliCPU == 0 {
		return 0
	}
	return max(milliCPU*period/1000, minQuota)
}

// hugepageLimits sets a limit of 0 for every page size of the machine for which neither the container nor its pod has a limit.
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

// HugePages returns the bytes of huge pages in the list, by page size in the spelling of hugetlb ("2MB").
func HugePages(list v1.ResourceList) map[string]uint64 {
	bytes := map[string]uint64{}
	for name, quantity := range list {
		text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		// Validation has rejected invalid sizes and negative quantities.
		if size, err := resource.ParseQuantity(text); err == nil {
			bytes[HugePageUnit(size.Value())] = uint64(max(quantity.Value(), 0))
		}
	}
	return bytes
}

// HugePageUnit formats a page size in bytes like the hugetlb cgroup's files: 2MB, 1GB.
func HugePageUnit(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	for len(units) > 1 && bytes > 0 && bytes%1024 == 0 {
		bytes /= 1024
		units = units[1:]
	}
	return strconv.FormatInt(bytes, 10) + units[0]
}

// setSwap gives a burstable container its share of the node's swap if the configuration permits it, and all others none
// (KEP-2400).
func setSwap(r *runtimeapi.LinuxContainerResources, pod *v1.Pod, container *v1.Container, node NodeFacts) {
	if !node.SwapController {
		return
	}
	if !node.CgroupV2 {
		// v1 limits memory and swap together: the same limit leaves no swap.
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

// setMemoryQoS makes the kernel slow a container down before it reaches its limit and, if configured, protect its requested
// memory: strictly in a guaranteed pod, and else as long as other memory can be reclaimed (KEP-2570).
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

// MaySwap reports whether the container gets a share of the node's swap, if the configuration permits any (KEP-2400).
func MaySwap(pod *v1.Pod, container *v1.Container) bool {
	request, limit := container.Resources.Requests.Memory(), container.Resources.Limits.Memory()
	return !IsCritical(pod) && QOSClass(pod) == v1.PodQOSBurstable && request.Cmp(*limit) != 0
}

// checkQuotaPeriod rejects periods that the kernel would reject.
func checkQuotaPeriod(node NodeFacts) error {
	if node.CPUCFSQuota && (node.CPUCFSQuotaPeriod < time.Millisecond || node.CPUCFSQuotaPeriod > time.Second) {
		return fmt.Errorf("cpuCFSQuotaPeriod %s is not between 1ms and 1s", node.CPUCFSQuotaPeriod)
	}
	return nil
}

// The cgroups of pods use these functions too, so that both count alike.

// PodRequests returns the requests of the pod as a whole, including its overhead. The result is the caller's.
func PodRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// PodLimits returns the limits of the pod as a whole, including its overhead for limited resources. The result is the caller's.
func PodLimits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
}

// LimitsPod reports whether a resource of the pod is limited as a whole: by the pod itself, or by each of its containers.
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
