package main

import "github.com/playlet-dev/playlet/e2e/conformance/suite"

// known are tests that do not run, and why: their images cannot be built of what there is, or the machine or the agent lacks
// what they need. What else fails because of the machine fails with -kubelet, too.
var known = []suite.Known{
	{`guaranteed qos.*(cpu|mem) restart`, "without CAP_SYS_RESOURCE no container is made less likely to be killed"},
	{`AppArmor`, "AppArmor is the kernel's, and would be loaded into the machine's"},
	{`ContainerMetrics`, "the kernel here tells of no block I/O of a cgroup; the kubelet fails, too"},
	{`Device Plugin|POD Resources|Pod Resources`,
		"there is no image sample-device-plugin, and no CPU manager; those of plugins that fail were not tried yet"},
}
