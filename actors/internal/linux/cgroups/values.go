package cgroups

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri"
)

// None is no limit.
const None = -1

// unbounded is what the kubelet gives groups of QoS classes of huge pages: their pods have limits of their own.
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
}

// Settings are what the values depend on besides pods.
type Settings struct {
	CPUCFSQuota       bool          // [cpuCFSQuota]
	CPUCFSQuotaPeriod time.Duration // [cpuCFSQuotaPeriod]
	PodPIDsLimit      int64         // [podPidsLimit]; 0 and below: no limit of the pod's own
	HugePageSizes     []string      // of the machine, in the spelling of hugetlb
	// EnforcePods says that pods together get no more than what is not reserved [enforceNodeAllocatable]; otherwise they
	// get at most the machine.
	EnforcePods bool
	Reserved    v1.ResourceList // [kubeReserved] and [systemReserved] together
}

// Capacity is the machine.
type Capacity struct {
	MilliCPU  int64
	Memory    int64             // bytes
	PIDs      int64             // 0: not known
	HugePages map[string]uint64 // bytes by page size
}

// PodValues are a pod's: the kubelet's rules for its group. Guaranteed pods are limited by the sum of their containers'
// limits, burstable ones only where each container has a limit or the pod itself has one (KEP-2837), best-effort ones not.
func PodValues(pod *v1.Pod, s Settings) Values {
	requests, limits := cri.PodRequests(pod), cri.PodLimits(pod)
	out := Values{
		CPUQuota: None, Memory: None, PIDs: None, CPUShares: cri.CPUShares(0), HugePages: hugePages(requests, s.HugePageSizes),
	}
	if s.PodPIDsLimit > 0 {
		out.PIDs = s.PodPIDsLimit
	}
	class := cri.QOSClass(pod)
	if class == v1.PodQOSBestEffort {
		return out
	}
	out.CPUShares = cri.CPUShares(requests.Cpu().MilliValue())
	everyone := class == v1.PodQOSGuaranteed
	if cpu := limits.Cpu(); s.CPUCFSQuota && !cpu.IsZero() && (everyone || declared(pod, v1.ResourceCPU)) {
		period := s.CPUCFSQuotaPeriod.Microseconds()
		out.CPUQuota, out.CPUPeriod = cri.CPUQuota(cpu.MilliValue(), period), uint64(max(period, 0))
	}
	if memory := limits.Memory(); !memory.IsZero() && (everyone || declared(pod, v1.ResourceMemory)) {
		out.Memory = memory.Value()
	}
	return out
}

// declared says that the pod is limited in a resource as a whole: by itself, or by each of its containers.
func declared(pod *v1.Pod, name v1.ResourceName) bool {
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

// hugePages are the limits for all page sizes of the machine; sizes that are not requested get 0.
func hugePages(list v1.ResourceList, sizes []string) map[string]uint64 {
	limits := cri.HugePages(list)
	out := map[string]uint64{}
	for _, size := range sizes {
		out[size] = limits[size]
	}
	return out
}

// ClassValues are those of the group of a QoS class. Burstable pods weigh together what they request together; best-effort
// ones weigh as little as can be. Neither is limited here.
func ClassValues(class v1.PodQOSClass, pods []*v1.Pod, s Settings) Values {
	milli := int64(0)
	if class == v1.PodQOSBurstable {
		for _, p := range pods {
			if cri.QOSClass(p) == v1.PodQOSBurstable {
				requests := cri.PodRequests(p)
				milli += requests.Cpu().MilliValue()
			}
		}
	}
	out := Values{CPUShares: cri.CPUShares(milli), HugePages: map[string]uint64{}}
	for _, size := range s.HugePageSizes {
		out.HugePages[size] = unbounded
	}
	return out
}

// NodeValues are those of kubepods, which has all pods: the machine, less what is reserved where that is enforced.
func NodeValues(c Capacity, s Settings) Values {
	less := func(have int64, name v1.ResourceName, value func(*resource.Quantity) int64) int64 {
		if q, ok := s.Reserved[name]; ok && s.EnforcePods {
			have -= value(&q)
		}
		return max(have, 1)
	}
	out := Values{
		CPUShares: cri.CPUShares(less(c.MilliCPU, v1.ResourceCPU, (*resource.Quantity).MilliValue)),
		Memory:    less(c.Memory, v1.ResourceMemory, (*resource.Quantity).Value),
		HugePages: map[string]uint64{},
	}
	if c.PIDs > 0 {
		out.PIDs = less(c.PIDs, "pid", (*resource.Quantity).Value)
	}
	for _, size := range s.HugePageSizes {
		out.HugePages[size] = c.HugePages[size]
	}
	return out
}
