// Package devices knows the node's device plugins, and which of their devices each container has (the kubelet's device plugin API
// v1beta1). It has one Manager a process: connections to plugins and allocations outlive every actor.
//
// How to read the folder: inventory.go has the state and every decision, and is pure. plugin.go handles registrations and
// follows each plugin's list of devices; registry.go has the plugins that register by a socket in plugins_registry. allocate.go
// calls the plugin for an allocation. given.go turns the answer into a container's configuration, and serves queries. store.go
// keeps the kubelet's checkpoint, so that a kubelet and this agent can replace each other.
//
// The rules are the kubelet's. Devices are allocated at admission, container by container, init containers first. Later
// containers may reuse the devices of an init container, but not those of a sidecar. Devices are held until nothing of the
// pod runs, and a recreated container gets the same ones. When a plugin is gone, its devices count as capacity for five
// minutes, but not as allocatable. Resources known only from the checkpoint are 0 until their plugin registers. If the
// checkpoint is absent or damaged, the Node's extended resources are set to 0 once, including those of other owners. An
// allocation is on disk before its pod is admitted.
package devices
