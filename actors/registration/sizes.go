package registration

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/threshold"
)

// Sizes configures the part of the machine that pods get.
type Sizes struct {
	// System and Kube are the reservations (systemReserved, kubeReserved): quantities by resource name.
	System, Kube map[string]string
	// EvictionHard holds the hard eviction thresholds by signal.
	EvictionHard map[string]string
	// IgnoreEviction ignores the thresholds (--experimental-allocatable-ignore-eviction).
	IgnoreEviction bool
	// MaxPods and PodsPerCore bound the number of pods; PodsPerCore 0 sets no bound.
	MaxPods, PodsPerCore int32
	// Devices returns capacity and allocatable of the device plugins' resources; nil without plugins. It does not block.
	Devices func() (capacity, allocatable v1.ResourceList)
	// Forgotten reports that the agent has lost its record of the plugins' resources, and Reset is called once the Node has none
	// of them. Both are nil if the record is intact. Neither blocks.
	Forgotten func() bool
	Reset     func()
	// LocalStorage makes ephemeral storage a resource (localStorageCapacityIsolation).
	LocalStorage bool
}

// Capacity returns the machine's resources, in the kubelet's terms.
func (s Sizes) Capacity(m Machine) v1.ResourceList {
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(m.CPUs)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(m.Memory, resource.BinarySI),
	}
	pods := int64(s.MaxPods)
	if s.PodsPerCore > 0 {
		pods = min(pods, int64(s.PodsPerCore)*int64(m.CPUs))
	}
	out[v1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	if s.LocalStorage && m.Disk > 0 {
		out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(m.Disk, resource.BinarySI)
	}
	for page, bytes := range m.HugePages {
		out[hugePages(page)] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return out
}

// hugePages returns the resource name of huge pages of this size in bytes, e.g. hugepages-2Mi.
func hugePages(page int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(page, resource.BinarySI).String())
}

// Reserved returns the part of a resource that pods do not get: the reservations, and the hard eviction thresholds of memory and
// of the node's file system.
func (s Sizes) Reserved(name v1.ResourceName, capacity resource.Quantity) (sum resource.Quantity) {
	for _, reserved := range []map[string]string{s.System, s.Kube} {
		if by, err := resource.ParseQuantity(reserved[string(name)]); err == nil { // validated; a missing quantity is zero
			sum.Add(by)
		}
	}
	signal := map[v1.ResourceName]string{
		v1.ResourceMemory: "memory.available", v1.ResourceEphemeralStorage: "nodefs.available",
	}[name]
	if signal != "" && !s.IgnoreEviction {
		sum.Add(threshold.Quantity(s.EvictionHard[signal], capacity.Value()))
	}
	return sum
}

// Allocatable returns the capacity less the reservations, and memory also less the huge pages. It is never negative.
func (s Sizes) Allocatable(capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		left.Sub(s.Reserved(name, q))
		out[name] = notNegative(left)
	}
	for name, q := range capacity {
		if isHugePages(name) {
			memory := out[v1.ResourceMemory]
			memory.Sub(q)
			out[v1.ResourceMemory] = notNegative(memory)
		}
	}
	return out
}

func notNegative(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
