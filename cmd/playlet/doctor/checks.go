package doctor

import "time"

// Checks are all there are, in the order in which their findings are shown.
var Checks = []Check{
	{Name: "configuration", About: "flags and files, and settings without effect", Run: checkConfiguration},
	{Name: "agent", About: "another agent, or a kubelet, on this machine", Run: checkAgent},
	{Name: "runtime", About: "the container runtime answers, with CRI v1", Run: checkRuntime},
	{Name: "conditions", About: "what the runtime says of itself and its network", Run: checkConditions},
	{Name: "features", About: "what the runtime can do", Run: checkFeatures},
	{Name: "cgroups", About: "version, controllers, whether groups can be made", Run: checkCgroups},
	{Name: "cgroup-driver", About: "who makes cgroups", Run: checkCgroupDriver},
	{Name: "network", About: "CNI configuration, plugins, their STATUS", Limit: 30 * time.Second, Run: checkNetwork},
	{Name: "attach", About: "CNI ADD, CHECK, DEL in a namespace made for it", Limit: 60 * time.Second, Undo: 30 * time.Second,
		Run: checkAttach},
	{Name: "address", About: "the node's address", Run: checkAddress},
	{Name: "forwarding", About: "IP forwarding and bridge filtering", Limit: 30 * time.Second, Run: checkForwarding},
	{Name: "resolver", About: "the resolver configuration that pods get", Run: checkResolver},
	{Name: "ports", About: "the agent's ports are free, or who has them", Run: checkPorts},
	{Name: "mounts", About: "the root folder's file system and propagation", Run: checkMounts},
	{Name: "permissions", About: "other users cannot write the agent's files", Run: checkPermissions},
	{Name: "openat2", About: "paths of pods can be opened safely", Run: checkOpenat2},
	{Name: "manifests", About: "the folder of manifests", Run: checkManifests},
	{Name: "disk", About: "room for pods, logs and images against eviction thresholds", Run: checkDisk},
	{Name: "volumes", About: "volumes that a kubelet left and the agent cannot manage", Run: checkVolumes},
	{Name: "memory", About: "memory against the eviction threshold, and swap", Run: checkMemory},
	{Name: "clock", About: "the clock is right and stays so", Run: checkClock},
	{Name: "capabilities", About: "what this process may do", Run: checkCapabilities},
	{Name: "kernel", About: "kernel settings, user namespaces", Run: checkKernel},
}
