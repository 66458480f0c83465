package doctor

import (
	"context"
	"os"
	"path/filepath"
)

// defaultDriver is what the configuration says where nobody has said anything.
const defaultDriver = "cgroupfs"

// checkCgroupDriver compares who is to make cgroups with who can.
func checkCgroupDriver(ctx context.Context, m *Machine) []Finding {
	driver, from := m.Node.Kubelet.CgroupDriver, "by the configuration"
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	if facts.driver != "" {
		driver, from = facts.driver, "as the runtime says"
	}
	_, err = os.Stat(filepath.Join(m.Run, "systemd/system")) // sd_booted(3)
	systemd := err == nil
	unified, _ := m.unified() // that there are none is a finding of its own
	switch {
	case driver == "systemd" && !systemd:
		return fail("have the runtime use cgroupfs ("+driverSetting(m, "false", "cgroupfs")+"), and set cgroupDriver: cgroupfs",
			"systemd, %s, and this machine is not run by systemd", from)
	case driver == "cgroupfs" && systemd && unified:
		return warn("have the runtime use systemd ("+driverSetting(m, "true", "systemd")+"), and set cgroupDriver: systemd; "+
			"pods have to be made anew then",
			"cgroupfs, %s, beside systemd, which thinks that the tree is its own", from)
	case facts.driver != "" && m.Node.Kubelet.CgroupDriver != facts.driver && m.Node.Kubelet.CgroupDriver != defaultDriver:
		return warn("set cgroupDriver: "+facts.driver, "%s, %s, which counts; the configuration says %s", driver, from,
			m.Node.Kubelet.CgroupDriver)
	}
	return ok("%s, %s", driver, from)
}

// driverSetting is what says so in the runtime's own configuration.
func driverSetting(m *Machine, containerd, crio string) string {
	if name, _ := unit(m.Node.Kubelet.ContainerRuntimeEndpoint); name == "crio" {
		return "cgroup_manager = \"" + crio + "\" of CRI-O"
	}
	return "SystemdCgroup = " + containerd + " for runc of containerd"
}
