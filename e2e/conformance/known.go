package main

import "github.com/playlet-dev/playlet/e2e/conformance/suite"

// known are tests that do not run, and why: their images cannot be built of what there is, or the machine or the agent lacks
// what they need. What else fails because of the machine fails with -kubelet, too.
var known = []suite.Known{
	{`guaranteed qos.*(cpu|mem) restart`, "without CAP_SYS_RESOURCE no container is made less likely to be killed"},
	{`AppArmor`, "AppArmor is the kernel's, and would be loaded into the machine's"},
	{`ContainerMetrics`, "the kernel here tells of no block I/O of a cgroup; the kubelet fails, too"},
}

// causes are the reasons of failures that a table names, by the spec and its message.
var causes = []struct{ specs, message, why string }{
	{`PrivilegedPod`, ``, "the host's kernel has no dummy links"},
	{`container runtime is temporarily down`, ``, "the spec stops the runtime through systemd's D-Bus, which the host has not"},
	{`should merge kubelet configs correctly`, `masked`, "Playlet masks the values of staticPodURLHeader at /configz: they are credentials"},
	{`GracefulNodeShutdown`, ``, "needs systemd and its login1"},
}
