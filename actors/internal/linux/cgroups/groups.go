package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	library "github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Groups manages the cgroups of a machine. Implementations are safe for concurrent use on different names.
type Groups interface {
	// Apply creates the group and its parents if they are missing, and sets its values.
	Apply(name Name, systemd bool, v Values) error
	// Set sets the values of an existing group.
	Set(name Name, systemd bool, v Values) error
	// Remove removes the group and all groups below it. They must contain no process. A missing group is not an error.
	Remove(name Name, systemd bool) error
	// Children returns the literal names of the child groups in any hierarchy, sorted. A missing group has no children.
	Children(name Name, systemd bool) ([]string, error)
	// Uses returns the memory usage of the group in bytes, without memory that can be reclaimed at once. The usage of a missing
	// group is 0.
	Uses(name Name, systemd bool) (int64, error)
	// Kill sends SIGKILL to all processes in the group and below it, and returns their IDs. The processes end a moment later.
	Kill(name Name, systemd bool) (found []int, err error)
	// Enter moves processes into a group, and creates the group if it is missing. The name is a cgroupfs path with either
	// driver. A process that has ended is not an error.
	Enter(name Name, pids ...int) error
	// Ungrouped returns the processes in the root of the hierarchies, except PID 1 and kernel threads.
	Ungrouped() ([]int, error)
}

// Host manages the machine's own cgroups (v1, v2 or hybrid), mounted below /sys/fs/cgroup. The zero value is ready to use.
type Host struct{}

// Apply implements Groups.
func (Host) Apply(name Name, systemd bool, v Values) error {
	m, err := managerOf(name, systemd)
	if err != nil {
		return err
	}
	err = m.Apply(-1) // no process is moved
	if err != nil && systemd {
		// The library waits for a signal at the end of systemd's job, and any local user can send that signal. A second request
		// asks systemd itself: an existing slice is not an error.
		err = m.Apply(-1)
	}
	if err != nil {
		return err
	}
	return set(m, v)
}

// Set implements Groups.
func (Host) Set(name Name, systemd bool, v Values) error {
	m, err := managerOf(name, systemd)
	if err != nil {
		return err
	}
	return set(m, v)
}

func set(m library.Manager, v Values) error {
	return m.Set(resources(v, library.IsCgroup2UnifiedMode(), hugeTLB(m.GetPaths())))
}

// Remove implements Groups.
func (Host) Remove(name Name, systemd bool) error {
	m, err := managerOf(name, systemd)
	if err != nil {
		return err
	}
	return m.Destroy()
}

// Children implements Groups.
func (Host) Children(name Name, systemd bool) ([]string, error) {
	m, err := managerOf(name, systemd)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dir := range m.GetPaths() {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				names = append(names, entry.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Uses implements Groups.
func (Host) Uses(name Name, systemd bool) (int64, error) {
	m, err := managerOf(name, systemd)
	if err != nil {
		return 0, err
	}
	dir, file, cache := m.Path(""), "memory.current", "inactive_file "
	if !library.IsCgroup2UnifiedMode() {
		dir, file, cache = m.Path("memory"), "memory.usage_in_bytes", "total_inactive_file "
	}
	used, err := readNumber(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(line, cache); ok {
			bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return 0, err
			}
			used -= bytes
		}
	}
	return max(used, 0), nil
}

// managerOf returns the library's manager of a group. The runtime manages devices.
func managerOf(name Name, systemd bool) (library.Manager, error) {
	config := &library.Cgroup{Systemd: systemd, Resources: &library.Resources{SkipDevices: true, SkipFreezeOnSet: true}}
	if !systemd {
		config.Path = name.Cgroupfs()
		return manager.New(config)
	}
	parent, base := path.Split(name.Systemd())
	config.Name, config.Parent = base, path.Base(parent)
	if parent == "/" {
		config.Parent = "-.slice"
	}
	return manager.New(config)
}

// hugeTLB reports whether groups can limit huge pages, from the paths of an existing group.
func hugeTLB(paths map[string]string) bool {
	if _, ok := paths["hugetlb"]; ok {
		return true
	}
	if dir, ok := paths[""]; ok && library.IsCgroup2UnifiedMode() {
		files, err := filepath.Glob(filepath.Join(dir, "hugetlb.*.max"))
		return err == nil && len(files) > 0
	}
	return false
}

// resources converts the values to the library's type.
func resources(v Values, unified, hugetlb bool) *library.Resources {
	r := &library.Resources{
		SkipDevices: true, SkipFreezeOnSet: true,
		CpuQuota: v.CPUQuota, CpuPeriod: v.CPUPeriod, Memory: v.Memory,
	}
	if unified {
		r.CpuWeight, r.Unified = cpuWeight(v.CPUShares), v.Unified
	} else {
		r.CpuShares = v.CPUShares
	}
	if v.PIDs != 0 {
		r.PidsLimit = &v.PIDs
	}
	if hugetlb {
		for size, limit := range v.HugePages {
			r.HugetlbLimit = append(r.HugetlbLimit, &library.HugepageLimit{Pagesize: size, Limit: limit})
		}
	}
	return r
}

// cpuWeight converts shares of cgroup v1 to cpu.weight with the kubelet's linear formula (KEP-2254). 0 leaves the weight
// unchanged. The library's own conversion differs: its weights would not be proportional to the requests of the pods.
func cpuWeight(shares uint64) uint64 {
	if shares == 0 {
		return 0
	}
	return 1 + (min(max(shares, 2), 262144)-2)*9999/262142
}

// Enter implements Groups.
func (Host) Enter(name Name, pids ...int) error {
	m, err := managerOf(name, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if err := m.Apply(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("process %d into cgroup %s: %w", pid, name.Cgroupfs(), err))
		}
	}
	return errors.Join(errs...)
}

// Ungrouped implements Groups.
func (Host) Ungrouped() ([]int, error) {
	m, err := managerOf(nil, false)
	if err != nil {
		return nil, err
	}
	all, err := m.GetPids()
	var ungrouped []int
	for _, pid := range all {
		// Kernel threads have no executable, and PID 1 is not moved.
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && pid > 1 {
			ungrouped = append(ungrouped, pid)
		}
	}
	return ungrouped, err
}
