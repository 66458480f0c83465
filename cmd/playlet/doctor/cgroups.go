package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/resources"
	"github.com/playlet-dev/playlet/cmd/playlet/agent"
)

// Controllers without which pods cannot be bounded, and those without which something smaller is missed.
var (
	neededControllers = []string{"cpu", "cpuset", "memory", "pids"}
	usefulControllers = map[string]string{"hugetlb": "huge pages are not limited"}
)

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	dir         string
	unified     bool
	readOnly    bool
	controllers []string
}

// hierarchies are those mounted below /sys/fs/cgroup.
func (m *Machine) hierarchies() ([]hierarchy, error) {
	mounts, err := m.mounts(0)
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for _, at := range mounts {
		if at.Mountpoint != m.cgroup() && !strings.HasPrefix(at.Mountpoint, m.cgroup()+"/") {
			continue
		}
		h := hierarchy{dir: at.Mountpoint, readOnly: slices.Contains(strings.Split(at.Options, ","), "ro")}
		switch at.FSType {
		case "cgroup2":
			h.unified = true
			text, err := os.ReadFile(filepath.Join(h.dir, "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			h.controllers = strings.Fields(string(text))
		case "cgroup":
			h.controllers = strings.Split(at.VFSOptions, ",")
		default:
			continue
		}
		out = append(out, h)
	}
	return out, nil
}

// mounts returns the mounts that a process sees, or those that this process sees if pid is 0 or only root can read the others.
func (m *Machine) mounts(pid int) ([]*mountinfo.Info, error) {
	self := filepath.Join(m.Proc, "self/mountinfo")
	path := self
	if pid != 0 {
		path = filepath.Join(m.Proc, strconv.Itoa(pid), "mountinfo")
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) && pid != 0 {
		f, err = os.Open(self)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return mountinfo.GetMountsFromReader(f, nil)
}

// unified reports whether the machine has cgroups of version 2 only, as the agent sees it.
func (m *Machine) unified() (bool, error) {
	disk, err := m.System.Disk(m.cgroup())
	return disk.Type == unix.CGROUP2_SUPER_MAGIC, err
}

func checkCgroups(_ context.Context, m *Machine) []Finding {
	const mount = "mount them: systemd does, and mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	unified, err := m.unified()
	if err != nil {
		return fail(mount, "no cgroups: %v", err)
	}
	all, err := m.hierarchies()
	if err != nil || len(all) == 0 {
		return fail(mount, "no cgroups are mounted at %s", m.cgroup())
	}
	if err := m.Node.CheckCgroups(unified); err != nil {
		return fail("boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or start the agent with --fail-cgroupv1=false",
			"%v", err)
	}
	var controllers []string
	var found []Finding
	for _, h := range all {
		controllers = append(controllers, h.controllers...)
		useful := slices.ContainsFunc(h.controllers, func(c string) bool { return slices.Contains(neededControllers, c) })
		if f := m.groupsCanBeMade(h); useful || len(all) == 1 {
			found = append(found, f...)
		}
	}
	found = append(found, missing(controllers, unified)...)
	if err := agent.CheckGroups(m.Node, groups{all: all}); err != nil {
		found = append(found, fail("create it, or remove the setting", "%v", err)...)
	}
	root := cmp.Or(m.Node.Kubelet.CgroupRoot, "/")
	if unified {
		return or(found, ok("version 2; root %s", root))
	}
	beside := ""
	if slices.ContainsFunc(all, func(h hierarchy) bool { return h.unified }) {
		beside = ", and version 2 beside it"
	}
	return or(found, warn("plan to move to cgroup v2: Kubernetes is dropping v1",
		"version 1%s, allowed by failCgroupV1: false; root %s", beside, root))
}

// groups are those that there are, for looking alone.
type groups struct {
	resources.Groups
	all []hierarchy
}

// groups returns the machine's groups; nil if they cannot be read.
func (m *Machine) groups() resources.Groups {
	all, err := m.hierarchies()
	if err != nil || len(all) == 0 {
		return nil
	}
	return groups{all: all}
}

func (g groups) Children(name resources.Name, systemd bool) (names []string, err error) {
	path := name.Cgroupfs()
	if systemd {
		path = name.Systemd()
	}
	for _, h := range g.all {
		entries, _ := os.ReadDir(filepath.Join(h.dir, path)) // most groups are in some hierarchies alone
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// missing names controllers that no hierarchy has.
func missing(there []string, unified bool) []Finding {
	var found []Finding
	for _, c := range neededControllers {
		if !slices.Contains(there, c) {
			do := "boot with cgroup_enable=" + c + " on the kernel's command line, or use a kernel that has it"
			if !unified {
				do += "; cgroup v1 must also mount it"
			}
			found = append(found, fail(do, "the controller %s is missing", c)...)
		}
	}
	for c, what := range usefulControllers {
		if !slices.Contains(there, c) {
			found = append(found, warn("nothing, unless pods need it", "the controller %s is missing: %s", c, what)...)
		}
	}
	return found
}

// groupsCanBeMade returns findings about a hierarchy in which this process cannot create groups or enable controllers for them.
func (m *Machine) groupsCanBeMade(h hierarchy) []Finding {
	const delegate = "run on the host, or delegate a part of the tree: Delegate=yes of systemd, --cgroupns=host and a " +
		"writable /sys/fs/cgroup of a container"
	if h.readOnly {
		return fail(delegate, "%s is mounted read-only", h.dir)
	}
	if err := m.System.Writable(h.dir); err != nil {
		return fail(delegate, "no cgroup can be created: %v", err)
	}
	if !h.unified {
		return nil
	}
	down, err := os.ReadFile(filepath.Join(h.dir, "cgroup.subtree_control"))
	if err != nil {
		return fail(delegate, "%v", err)
	}
	var kept []string
	for _, c := range neededControllers {
		if slices.Contains(h.controllers, c) && !slices.Contains(strings.Fields(string(down)), c) {
			kept = append(kept, c)
		}
	}
	// The agent enables the missing controllers. The kernel rejects that in a group with processes of its own, except in the
	// machine's root, which alone has no type (cgroups(7), "no internal processes").
	_, err = os.Stat(filepath.Join(h.dir, "cgroup.type"))
	members, _ := os.ReadFile(filepath.Join(h.dir, "cgroup.procs"))
	if len(kept) > 0 && err == nil && len(strings.TrimSpace(string(members))) > 0 {
		return fail("move the processes in "+h.dir+"/cgroup.procs to a group below it, as init systems of containers do",
			"the controllers %s cannot be enabled for pods: %s has processes of its own", strings.Join(kept, ", "), h.dir)
	}
	return nil
}

// defaultDriver is the driver of a configuration that sets none.
const defaultDriver = "cgroupfs"

// checkCgroupDriver compares the configured creator of cgroups with the machine.
func checkCgroupDriver(ctx context.Context, m *Machine) []Finding {
	driver, from := m.Node.Kubelet.CgroupDriver, "from the configuration"
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	if facts.driver != "" {
		driver, from = facts.driver, "reported by the runtime"
	}
	_, err = os.Stat(filepath.Join(m.Run, "systemd/system")) // sd_booted(3)
	systemd := err == nil
	unified, _ := m.unified() // that there are none is a finding of its own
	switch {
	case driver == "systemd" && !systemd:
		return fail("configure the runtime for cgroupfs ("+driverSetting(m, "false", "cgroupfs")+"), "+
			"and set cgroupDriver: cgroupfs",
			"systemd, %s, and this machine does not run systemd", from)
	case driver == "cgroupfs" && systemd && unified:
		return warn("configure the runtime for systemd ("+driverSetting(m, "true", "systemd")+"), "+
			"and set cgroupDriver: systemd; "+
			"pods must then be recreated", "cgroupfs, %s, beside systemd, which manages the same tree", from)
	case facts.driver != "" && m.Node.Kubelet.CgroupDriver != facts.driver && m.Node.Kubelet.CgroupDriver != defaultDriver:
		return warn("set cgroupDriver: "+facts.driver, "%s, %s, which takes precedence; the configuration names %s", driver, from,
			m.Node.Kubelet.CgroupDriver)
	}
	return ok("%s, %s", driver, from)
}

// driverSetting returns the setting of the driver in the runtime's own configuration.
func driverSetting(m *Machine, containerd, crio string) string {
	if name, _ := unit(m.Node.Kubelet.ContainerRuntimeEndpoint); name == "crio" {
		return "cgroup_manager = \"" + crio + "\" of CRI-O"
	}
	return "SystemdCgroup = " + containerd + " for runc of containerd"
}
