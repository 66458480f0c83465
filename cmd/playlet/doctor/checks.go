package doctor

import "time"

// Checks are all there are, in the order in which their findings are shown.
var Checks = []Check{
	{Name: "configuration", About: "flags, files, and settings without effect", Run: checkConfiguration},
	{Name: "agent", About: "another agent, or a kubelet, on this machine", Run: checkAgent},
	{Name: "runtime", About: "the container runtime answers with CRI v1", Run: checkRuntime},
	{Name: "conditions", About: "the runtime's status and its network's", Run: checkConditions},
	{Name: "features", About: "the runtime's optional features", Run: checkFeatures},
	{Name: "cgroups", About: "version, controllers, whether groups can be created", Run: checkCgroups},
	{Name: "cgroup-driver", About: "the cgroup driver", Run: checkCgroupDriver},
	{Name: "network", About: "CNI configuration, plugins, their STATUS", Limit: 30 * time.Second, Run: checkNetwork},
	{Name: "attach", About: "CNI ADD, CHECK, DEL in a temporary namespace", Limit: 60 * time.Second, Undo: 30 * time.Second,
		Run: checkAttach},
	{Name: "address", About: "the node's address", Run: checkAddress},
	{Name: "forwarding", About: "IP forwarding and bridge filtering", Limit: 30 * time.Second, Run: checkForwarding},
	{Name: "resolver", About: "the resolver configuration that pods get", Run: checkResolver},
	{Name: "ports", About: "the agent's ports are free, or which process has them", Run: checkPorts},
	{Name: "mounts", About: "the root folder's file system and propagation", Run: checkMounts},
	{Name: "permissions", About: "other users cannot write the agent's files", Run: checkPermissions},
	{Name: "certificates", About: "certificates that the configuration names", Run: checkCertificates},
	{Name: "openat2", About: "paths of pods can be opened safely", Run: checkOpenat2},
	{Name: "manifests", About: "the folder of manifests", Run: checkManifests},
	{Name: "disk", About: "disk space for pods, logs and images, compared with eviction thresholds", Run: checkDisk},
	{Name: "volumes", About: "volumes that the agent cannot manage, and folders that it keeps", Run: checkVolumes},
	{Name: "memory", About: "memory, compared with the eviction threshold, and swap", Run: checkMemory},
	{Name: "cpus", About: "exclusive CPUs: the policy, and the checkpoint of an earlier one", Run: checkCPUs},
	{Name: "numa", About: "memory by NUMA node: the policies, and the checkpoint of an earlier one", Run: checkNUMA},
	{Name: "clock", About: "the clock is synchronised", Run: checkClock},
	{Name: "capabilities", About: "the capabilities of this process", Run: checkCapabilities},
	{Name: "kernel", About: "kernel settings", Run: checkKernel},
	{Name: "users", About: "user namespaces of pods (hostUsers: false)", Run: checkUsers},
}
