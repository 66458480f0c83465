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
		return fail("set SystemdCgroup = false for runc in containerd's configuration, and cgroupDriver: cgroupfs",
			"systemd, %s, and this machine is not run by systemd", from)
	case driver == "cgroupfs" && systemd && unified:
		return warn("set SystemdCgroup = true for runc in containerd's configuration, and cgroupDriver: systemd; pods have to "+
			"be "+
			"made anew then",
			"cgroupfs, %s, beside systemd, which thinks that the tree is its own", from)
	case facts.driver != "" && m.Node.Kubelet.CgroupDriver != facts.driver && m.Node.Kubelet.CgroupDriver != defaultDriver:
		return warn("set cgroupDriver: "+facts.driver, "%s, %s, which counts; the configuration says %s", driver, from,
			m.Node.Kubelet.CgroupDriver)
	}
	return ok("%s, %s", driver, from)
}
