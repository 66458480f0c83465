// Package devices knows the node's device plugins, and which of their devices each container has (the kubelet's device plugin API
// v1beta1). It has one Manager a process: connections to plugins and allocations outlive every actor.
//
// How to read the folder: inventory.go is what is known, and every decision, pure; plugin.go takes registrations and follows each
// plugin's list of devices; allocate.go has a plugin allocate; given.go is what containers get of it, and what others may know;
// store.go keeps it in the kubelet's checkpoint (checkpoint), so that a kubelet and this agent can take each other's place.
//
// Rules, the kubelet's: devices are allocated when a pod is admitted, container by container, init containers first. What an init
// container had may be had by those after it; what a sidecar has stays its own. They are held until nothing of the pod runs, and
// a container that is made again has the same ones. A plugin that went is waited for for five minutes: its devices are capacity
// and not allocatable. Resources that only the checkpoint knows are 0 until their plugin registers; where there is none, or it is
// damaged, the Node's extended resources are set to 0 once, whoever gave them. An allocation is on the disk before its pod is
// admitted.
package devices
