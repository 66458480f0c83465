package main

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
)

// sizes is what the configuration says of how much of the machine pods get.
func sizes(node *config.Node) registration.Sizes {
	k := node.Kubelet
	return registration.Sizes{
		System: k.SystemReserved, Kube: k.KubeReserved, EvictionHard: k.EvictionHard, IgnoreEviction: node.AllocatableIgnoresEviction,
		MaxPods: k.MaxPods, PodsPerCore: k.PodsPerCore, LocalStorage: deref(k.LocalStorageCapacityIsolation, true),
	}
}

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction thresholds, which pods must not come to.
func allocatable(node *config.Node, machine registration.Machine) v1.ResourceList {
	s := sizes(node)
	return s.Allocatable(s.Capacity(machine))
}

// notEvicted are the signals whose hard thresholds were set, and at which nothing is evicted yet.
func notEvicted(node *config.Node) []string {
	var out []string
	plain := config.DefaultEvictionHard()
	for _, signal := range slices.Sorted(maps.Keys(node.Kubelet.EvictionHard)) {
		if text := node.Kubelet.EvictionHard[signal]; !registration.TurnedOff(text) && text != plain[signal] {
			out = append(out, signal)
		}
	}
	return out
}
