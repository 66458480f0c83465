package main

import (
	"log/slog"
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

// nodeSizes are the sizes that the Node reports.
func (a *agent) nodeSizes() registration.Sizes {
	s := sizes(a.node)
	s.Devices = a.devices
	return s
}

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction thresholds, which pods must not come to.
func allocatable(node *config.Node, machine registration.Machine) v1.ResourceList {
	s := sizes(node)
	return s.Allocatable(s.Capacity(machine))
}

// pluginDevices are the resources of the device plugins that a kubelet had here, by its checkpoint at path. Where that cannot be told,
// it may be any.
func pluginDevices(path string, log *slog.Logger) []string {
	devices, err := registration.Devices(path)
	if err != nil {
		log.Warn("no extended resource is given to pods, as any may be of a device plugin: those that ask for one wait; "+
			"mend or remove the checkpoint, and restart the agent", "reason", err)
		return []string{registration.AnyDevice}
	}
	if len(devices) > 0 {
		log.Warn("resources of a kubelet's device plugins are not given to pods yet: those that ask for them wait; "+
			"where the plugins are gone for good, remove the checkpoint, and restart the agent", "resources", devices, "checkpoint", path)
	}
	return devices
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
