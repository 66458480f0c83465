package cgroups

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// None is no limit.
const None = -1

// unbounded is the kubelet's limit of huge pages for kubepods and its QoS classes: pods have limits of their own.
const unbounded = 1 << 62

// Values are what a group is given, all of them each time. The zero value of a limit leaves it as it is.
type Values struct {
	CPUShares uint64 // as of cgroup v1, 2 to 262144; on v2 it is converted to a weight
	CPUQuota  int64  // microseconds in each period; None: no limit
	CPUPeriod uint64 // microseconds
	Memory    int64  // bytes; None: no limit
	PIDs      int64  // processes and threads; None: no limit
	// HugePages are bytes by page size in the spelling of hugetlb ("2MB").
	HugePages map[string]uint64
	// Unified are values of files that only cgroup v2 has, by the file's name; with v1 they are left out.
	Unified map[string]string
}

// Settings are what the values depend on besides pods.
type Settings struct {
	CPUCFSQuota       bool          // [cpuCFSQuota]
	CPUCFSQuotaPeriod time.Duration // [cpuCFSQuotaPeriod]
	// UnlimitedCPU reports whether the CPU time of a pod is not limited, because of CPUs of its own; nil: no pod's.
	UnlimitedCPU  func(*v1.Pod) bool
	PodPIDsLimit  int64    // [podPidsLimit]; 0 and below: no limit of the pod's own
	HugePageSizes []string // of the machine, in the spelling of hugetlb
	// EnforcePods says that pods together get no more than what is not reserved [enforceNodeAllocatable]; otherwise they
	// get at most the machine.
	EnforcePods bool
	Reserved    v1.ResourceList // [kubeReserved] and [systemReserved] together
	// Reservations are the groups on which a reservation is enforced.
	Reservations []Reservation
	// QOSReserved is how much of the memory that the pods of a class ask for is kept from those of the classes below it, in
	// per cent [qosReserved]; nil: the classes are not limited.
	QOSReserved *int64
	// MemoryQoS says that memory is kept for those who ask for it (KEP-2570); ProtectMemory, that it is more than nothing
	// [memoryReservationPolicy].
	MemoryQoS, ProtectMemory bool
}

// protected are the files of cgroup v2 that keep so much memory for a group.
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
	memoryMin = "memory.min" // is never taken from a group
	memoryLow = "memory.low" // is taken from it last
)

// Reservation is a group that others have made, and that gets what is reserved for it and no more.
type Reservation struct {
	Setting string // that names it, for people
	Group   string // as the driver of cgroups spells it [systemReservedCgroup, kubeReservedCgroup]
	// Reserved is [systemReserved] or [kubeReserved].
	Reserved v1.ResourceList
	// Compressible says that CPU alone is enforced.
	Compressible bool
}

// Values are those of the group.
func (r Reservation) Values(s Settings) (out Values) {
	if cpu, ok := r.Reserved[v1.ResourceCPU]; ok {
		out.CPUShares = translate.CPUShares(cpu.MilliValue())
	}
	if memory, pids := r.Reserved[v1.ResourceMemory], r.Reserved["pid"]; !r.Compressible {
		out.Memory, out.PIDs = memory.Value(), pids.Value()
		if out.Memory > 0 && s.MemoryQoS { // whatever memoryReservationPolicy says of pods
			out.Unified = map[string]string{memoryMin: strconv.FormatInt(out.Memory, 10)}
		}
	}
	return out
}

// Capacity is the machine.
type Capacity struct {
	MilliCPU int64
	Memory   int64 // bytes
	PIDs     int64 // 0: not known
}

// PodValues are a pod's: the kubelet's rules for its group. Guaranteed pods are limited by the sum of their containers'
// limits, burstable ones only where each container has a limit or the pod itself has one (KEP-2837), best-effort ones not.
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

// hugePages are the limits for all page sizes of the machine; sizes that are not requested get 0.
func hugePages(list v1.ResourceList, sizes []string) map[string]uint64 {
	limits := translate.HugePages(list)
	out := map[string]uint64{}
	for _, size := range sizes {
		out[size] = limits[size]
	}
	return out
}

// unboundedPages are the limits of groups that do not limit huge pages.
func unboundedPages(sizes []string) map[string]uint64 {
	out := map[string]uint64{}
	for _, size := range sizes {
		out[size] = unbounded
	}
	return out
}

// ClassValues are those of the group of a QoS class. Burstable pods weigh together what they request together; best-effort
// ones weigh as little as can be. Memory is limited by what is kept for the pods of the classes above, where that is asked for.
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
		// Where nothing is left, a limit would end each process at its start: as with the kubelet, none is set.
		out.Memory = max(out.Memory, 0)
	}
	return out
}

// requested is what pods ask for together, in thousandths of a CPU and in bytes.
type requested struct{ milliCPU, memory int64 }

func classRequests(pods []*v1.Pod) map[v1.PodQOSClass]requested {
	out := map[v1.PodQOSClass]requested{}
	for _, p := range pods {
		list, class := translate.PodRequests(p), translate.QOSClass(p)
		sum := out[class]
		sum.milliCPU += list.Cpu().MilliValue()
		sum.memory += list.Memory().Value()
		out[class] = sum
	}
	return out
}

// NodeValues are those of kubepods, which has all pods: the machine, less what is reserved where that is enforced. What is kept
// for a group is no more than what is kept for those above it.
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
