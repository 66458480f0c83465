package main

import "github.com/playlet-dev/playlet/e2e/conformance/suite"

// known are tests that do not run, with reasons: their images cannot be built here, or the machine or the agent lacks a
// requirement. Other failures caused by the machine also occur with -kubelet.
var known = []suite.Exclusion{
	{`guaranteed qos.*(cpu|mem) restart`, "without CAP_SYS_RESOURCE no container is made less likely to be killed"},
	{`AppArmor`, "AppArmor is the kernel's, and would be loaded into the machine's"},
	{`ContainerMetrics`, "the kernel here tells of no block I/O of a cgroup; the kubelet fails, too"},
}

// causes are the reasons of failures in a table, by the spec and its message. Those without a message also explain a spec that is
// not run.
var causes = []struct{ specs, message, why string }{
	{`PrivilegedPod`, ``, "host: the kernel has no dummy links"},
	{`container runtime is temporarily down`, ``, "host: the spec stops the runtime through systemd's D-Bus"},
	{`GracefulNodeShutdown`, ``, "host: needs systemd's login1; judged in the virtual machine"},
	{`\[Feature:NodeSwap\]|MemoryQoS|Memory QoS`, ``, "host: needs cgroup v2; judged in the virtual machine"},
	{`ImageGCNoEviction`, ``, "host: pulls images of the public registries by their digests"},
	{`NodePerf|Node Performance`, ``, "host: the images of the workloads cannot be had"},
	{`should merge kubelet configs correctly`, `masked`,
		"Playlet: masks the values of staticPodURLHeader at /configz, as they are credentials"},
	{`StandaloneMode.*init container is removed`, `startTime`,
		"Playlet: keeps the pod's startTime over a restart of the agent; the spec expects another one"},
	{`PodLevelResourceManagers`, ``, "Playlet: the alpha gate PodLevelResourceManagers has no effect"},
	{`CPU Manager|CPU manager|Topology Manager|core resource managers`, ``, "host: it has two CPUs, and one NUMA node"},
}
