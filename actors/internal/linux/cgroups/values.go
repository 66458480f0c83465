package cgroups

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// None means no limit.
const None = -1

// unbounded is the kubelet's limit of huge pages for kubepods and its QoS classes. Pods have their own limits.
const unbounded = 1 << 62

// Values are the values of a group, which are always set together. The zero value of a limit leaves the limit unchanged.
type Values struct {
	CPUShares uint64 // in the range of cgroup v1, 2 to 262144; on v2 it is converted to a weight
	CPUQuota  int64  // microseconds in each period; None: no limit
	CPUPeriod uint64 // microseconds
	Memory    int64  // bytes; None: no limit
	PIDs      int64  // processes and threads; None: no limit
	// HugePages are limits in bytes by page size, in the spelling of hugetlb ("2MB").
	HugePages map[string]uint64
	// Unified are the contents of files that only cgroup v2 has, by file name. They are ignored on v1.
	Unified map[string]string
}

// Settings are the inputs, other than pods, that determine the values.
type Settings struct {
	CPUCFSQuota       bool          // [cpuCFSQuota]
	CPUCFSQuotaPeriod time.Duration // [cpuCFSQuotaPeriod]
	// UnlimitedCPU reports whether a pod's CPU time is unlimited because the pod has exclusive CPUs. If it is nil, no pod has
	// any.
	UnlimitedCPU  func(*v1.Pod) bool
	PodPIDsLimit  int64    // [podPidsLimit]; 0 or less: no limit per pod
	HugePageSizes []string // of the machine, in the spelling of hugetlb
	// EnforcePods limits all pods together to the resources that are not reserved [enforceNodeAllocatable]. Otherwise they are
	// limited to the capacity of the machine.
	EnforcePods bool
	Reserved    v1.ResourceList // [kubeReserved] and [systemReserved] together
	// Reservations are the reservations that are enforced on groups.
	Reservations []Reservation
	// QOSReserved is the percentage of the memory requested by the pods of a class that lower classes cannot use [qosReserved].
	// If it is nil, the classes are not limited.
	QOSReserved *int64
	// MemoryQoS protects the requested and the reserved memory from reclaim (KEP-2570). Without ProtectMemory, the protected
	// memory of pods is 0 [memoryReservationPolicy].
	MemoryQoS, ProtectMemory bool
}

// protected returns the cgroup v2 file that protects this much memory of a group.
func (s Settings) protected(file string, bytes int64) map[string]string {
	switch {
	case !s.MemoryQoS:
		return nil
	case !s.ProtectMemory:
		bytes = 0
	}
	return map[string]string{file: strconv.FormatInt(bytes, 10)}
}

const (
	memoryMin = "memory.min" // protects memory from any reclaim
	memoryLow = "memory.low" // protects memory until nothing else can be reclaimed
)

// Reservation is a group that the agent does not own, limited to the resources that are reserved for it.
type Reservation struct {
	Setting string // the name of the setting, for messages
	Group   string // in the spelling of the cgroup driver [systemReservedCgroup, kubeReservedCgroup]
	// Reserved is [systemReserved] or [kubeReserved].
	Reserved v1.ResourceList
	// Compressible enforces only CPU.
	Compressible bool
}

// Values returns the values of the group.
func (r Reservation) Values(s Settings) (out Values) {
	if cpu, ok := r.Reserved[v1.ResourceCPU]; ok {
		out.CPUShares = translate.CPUShares(cpu.MilliValue())
	}
	if memory, pids := r.Reserved[v1.ResourceMemory], r.Reserved["pid"]; !r.Compressible {
		out.Memory, out.PIDs = memory.Value(), pids.Value()
		if out.Memory > 0 && s.MemoryQoS { // memoryReservationPolicy applies only to pods
			out.Unified = map[string]string{memoryMin: strconv.FormatInt(out.Memory, 10)}
		}
	}
	return out
}

// Capacity is the capacity of the machine.
type Capacity struct {
	MilliCPU int64
	Memory   int64 // bytes
	PIDs     int64 // 0: unknown
}

// PodValues returns the values of a pod's group, by the kubelet's rules. Guaranteed pods are limited to the sum of the limits
// of their containers. Burstable pods are limited only if each container or the pod itself has a limit (KEP-2837). Best-effort
// pods are not limited.
func PodValues(pod *v1.Pod, s Settings) Values {
	requests, limits := translate.PodRequests(pod), translate.PodLimits(pod)
	out := Values{
		CPUQuota: None, Memory: None, PIDs: None, CPUShares: translate.CPUShares(0),
		HugePages: hugePages(requests, s.HugePageSizes),
	}
	if s.PodPIDsLimit > 0 {
		out.PIDs = s.PodPIDsLimit
	}
	class := translate.QOSClass(pod)
	if memory := requests.Memory().Value(); memory > 0 && s.ProtectMemory {
		file := memoryLow
		if class == v1.PodQOSGuaranteed {
			file = memoryMin
		}
		out.Unified = s.protected(file, memory)
	}
	if class == v1.PodQOSBestEffort {
		return out
	}
	out.CPUShares = translate.CPUShares(requests.Cpu().MilliValue())
	everyone := class == v1.PodQOSGuaranteed
	limited := s.CPUCFSQuota && (s.UnlimitedCPU == nil || !s.UnlimitedCPU(pod))
	if cpu := limits.Cpu(); limited && !cpu.IsZero() && (everyone || translate.LimitsPod(pod, v1.ResourceCPU)) {
		period := s.CPUCFSQuotaPeriod.Microseconds()
		out.CPUQuota, out.CPUPeriod = translate.CPUQuota(cpu.MilliValue(), period), uint64(max(period, 0))
	}
	if memory := limits.Memory(); !memory.IsZero() && (everyone || translate.LimitsPod(pod, v1.ResourceMemory)) {
		out.Memory = memory.Value()
	}
	return out
}

// hugePages returns the limits for all page sizes of the machine. Sizes that are not requested get 0.
func hugePages(list v1.ResourceList, sizes []string) map[string]uint64 {
	limits := translate.HugePages(list)
	out := map[string]uint64{}
	for _, size := range sizes {
		out[size] = limits[size]
	}
	return out
}

// unboundedPages returns the limits of groups that do not limit huge pages.
func unboundedPages(sizes []string) map[string]uint64 {
	out := map[string]uint64{}
	for _, size := range sizes {
		out[size] = unbounded
	}
	return out
}

// ClassValues returns the values of the group of a QoS class. The burstable group gets shares for the sum of its pods'
// requests, and the best-effort group the minimum. With QOSReserved, memory is limited to the memory that is not kept for
// higher classes.
func ClassValues(class v1.PodQOSClass, pods []*v1.Pod, c Capacity, s Settings) Values {
	requests := classRequests(pods)
	milli := int64(0)
	if class == v1.PodQOSBurstable {
		milli = requests[class].milliCPU
	}
	out := Values{CPUShares: translate.CPUShares(milli), HugePages: unboundedPages(s.HugePageSizes)}
	if class == v1.PodQOSBurstable {
		out.Unified = s.protected(memoryLow, requests[class].memory)
	}
	if s.QOSReserved != nil {
		reserved := s.Reserved[v1.ResourceMemory]
		out.Memory = c.Memory - reserved.Value() - requests[v1.PodQOSGuaranteed].memory**s.QOSReserved/100
		if class == v1.PodQOSBestEffort {
			out.Memory -= requests[v1.PodQOSBurstable].memory * *s.QOSReserved / 100
		}
		// If no memory is left, a limit would kill each process at its start. Like the kubelet, set no limit then.
		out.Memory = max(out.Memory, 0)
	}
	return out
}

// requestSum is the sum of the requests of pods, in thousandths of a CPU and in bytes.
type requestSum struct{ milliCPU, memory int64 }

func classRequests(pods []*v1.Pod) map[v1.PodQOSClass]requestSum {
	out := map[v1.PodQOSClass]requestSum{}
	for _, p := range pods {
		list, class := translate.PodRequests(p), translate.QOSClass(p)
		sum := out[class]
		sum.milliCPU += list.Cpu().MilliValue()
		sum.memory += list.Memory().Value()
		out[class] = sum
	}
	return out
}

// NodeValues returns the values of kubepods, which contains all pods: the capacity of the machine, less the reservations if
// they are enforced. Its protected memory covers all pods, because the protection of a group is limited by its parents.
func NodeValues(pods []*v1.Pod, c Capacity, s Settings) Values {
	less := func(have int64, name v1.ResourceName, value func(*resource.Quantity) int64) int64 {
		if q, ok := s.Reserved[name]; ok && s.EnforcePods {
			have -= value(&q)
		}
		return max(have, 1)
	}
	out := Values{
		CPUShares: translate.CPUShares(less(c.MilliCPU, v1.ResourceCPU, (*resource.Quantity).MilliValue)),
		Memory:    less(c.Memory, v1.ResourceMemory, (*resource.Quantity).Value),
		HugePages: unboundedPages(s.HugePageSizes),
	}
	requests := classRequests(pods)
	out.Unified = s.protected(memoryMin, requests[v1.PodQOSGuaranteed].memory+requests[v1.PodQOSBurstable].memory)
	if c.PIDs > 0 {
		out.PIDs = less(c.PIDs, "pid", (*resource.Quantity).Value)
	}
	return out
}
