package agent

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// sizes say how much of the machine pods get.
func sizes(node *config.Node) registration.Sizes {
	k := node.Kubelet
	return registration.Sizes{
		System: k.SystemReserved, Kube: k.KubeReserved, EvictionHard: k.EvictionHard,
		IgnoreEviction: node.AllocatableIgnoresEviction,
		MaxPods:        k.MaxPods, PodsPerCore: k.PodsPerCore, LocalStorage: ptr.Deref(k.LocalStorageCapacityIsolation, true),
	}
}

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction thresholds, which pods must not come to.
func allocatable(node *config.Node, machine registration.Machine) v1.ResourceList {
	s := sizes(node)
	return s.Allocatable(s.Capacity(machine))
}
