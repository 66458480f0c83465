package registration

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/threshold"
)

// Sizes is what the configuration says of how much of the machine pods get.
type Sizes struct {
	// System and Kube are reserved (systemReserved, kubeReserved): quantities by the name of a resource.
	System, Kube map[string]string
	// EvictionHard has the hard thresholds by signal, which pods must not come to.
	EvictionHard map[string]string
	// IgnoreEviction leaves the thresholds out (--experimental-allocatable-ignore-eviction).
	IgnoreEviction bool
	// MaxPods and PodsPerCore bound the number of pods; 0 per core: no such bound.
	MaxPods, PodsPerCore int32
	// Devices are how much there is of the resources of device plugins, and how much pods can have; nil: there are none. It does
	// not wait.
	Devices func() (capacity, allocatable v1.ResourceList)
	// Forgotten says that it is not known which of the Node's extended resources are of plugins, and Reset is told when the Node
	// has none of them; nil: that is known. Neither waits.
	Forgotten func() bool
	Reset     func()
	// LocalStorage says that ephemeral storage is a resource (localStorageCapacityIsolation).
	LocalStorage bool
}

// Capacity is what the machine has, in the kubelet's terms.
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

// hugePages is the resource of huge pages of this size in bytes, e.g. hugepages-2Mi.
func hugePages(page int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(page, resource.BinarySI).String())
}

// Reserved is what pods do not get of a resource of which the machine has this much: what is reserved, and the hard eviction
// thresholds of memory and of the node's file system.
func (s Sizes) Reserved(name v1.ResourceName, capacity resource.Quantity) (sum resource.Quantity) {
	for _, reserved := range []map[string]string{s.System, s.Kube} {
		if by, err := resource.ParseQuantity(reserved[string(name)]); err == nil { // validated; a missing one is none
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

// Allocatable is what pods can have of the capacity: less what is reserved, memory less what lies in huge pages too. Never
// negative.
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
