package agent

import (
	"log/slog"
	"slices"

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

// sizes are those that the Node reports.
func (c *cluster) sizes(node *config.Node) registration.Sizes {
	s := sizes(node)
	s.Devices = c.devices.resources
	return s
}

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction thresholds, which pods must not come to.
func allocatable(node *config.Node, machine registration.Machine) v1.ResourceList {
	s := sizes(node)
	return s.Allocatable(s.Capacity(machine))
}

// plugins are the device plugins that a kubelet had on this machine.
type plugins struct {
	resources []v1.ResourceName
	unread    bool // the checkpoint cannot be read: any may have been there
}

// gave says whether an extended resource is a plugin's. It may be any where the checkpoint cannot be read.
func (p plugins) gave(name v1.ResourceName) bool {
	return p.unread || slices.Contains(p.resources, name)
}

// formerPlugins reads them from the kubelet's checkpoint at path.
func formerPlugins(path string, log *slog.Logger) plugins {
	devices, err := registration.Devices(path)
	if err != nil {
		log.Warn("no extended resource is given to pods, as any may be of a device plugin: those that ask for one wait; "+
			"mend or remove the checkpoint, and restart the agent", "reason", err)
	}
	if len(devices) > 0 {
		log.Warn("resources of a kubelet's device plugins are not given to pods yet: those that ask for them wait; "+
			"where the plugins are gone for good, remove the checkpoint, and restart the agent", "resources", devices,
			"checkpoint", path)
	}
	return plugins{resources: devices, unread: err != nil}
}
