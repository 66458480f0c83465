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

// Groups are the cgroups of a machine. Implementations are safe for concurrent use on different names.
type Groups interface {
	// Apply makes the group, with those above it, where it is not there, and gives it its values.
	Apply(name Name, systemd bool, v Values) error
	// Set gives a group that is there its values.
	Set(name Name, systemd bool, v Values) error
	// Remove removes the group and all below it, which must hold no process. Nothing there is no error.
	Remove(name Name, systemd bool) error
	// Children lists the literal names of the groups directly within, in any hierarchy, sorted; none where there is no such
	// group.
	Children(name Name, systemd bool) ([]string, error)
	// Uses is what is used of memory in the group and could not be given back at once, in bytes; 0 where there is no such group.
	Uses(name Name, systemd bool) (int64, error)
	// Kill sends SIGKILL to all processes in the group and below it, and tells which there were: they end a moment later.
	Kill(name Name, systemd bool) (found []int, err error)
	// Enter moves processes into a group of that path, of cgroupfs whatever the driver is, and makes it where it is not there. A
	// process that has ended is no error.
	Enter(name Name, pids ...int) error
	// Ungrouped lists the processes in the root of the hierarchies, other than the first one and the kernel's threads.
	Ungrouped() ([]int, error)
}

// Host is the machine's own cgroups, of v1, v2 or a hybrid, as they are mounted below /sys/fs/cgroup. The zero value
// is usable.
type Host struct{}

// Apply implements Groups.
func (Host) Apply(name Name, systemd bool, v Values) error {
	m, err := managerOf(name, systemd)
	if err != nil {
		return err
	}
	err = m.Apply(-1) // no process is moved
	if err != nil && systemd {
		// The library takes the end of systemd's job from a signal, which any local user can send. A second request asks systemd
		// itself: a slice that exists is no error.
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

// managerOf is the library's handle of a group. Devices are the runtime's.
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

// hugeTLB says whether groups can bound huge pages, by the paths of one that was made.
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

// resources are the values as the library takes them.
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

// cpuWeight is cpu.weight for shares of cgroup v1, in proportion as the kubelet has it (KEP-2254); 0 leaves it as it is.
// The library's own conversion is another one: weights by it would not be in the proportion of the pods' requests.
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
		// The kernel's own threads have no program, and the first process stays where it is.
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && pid > 1 {
			ungrouped = append(ungrouped, pid)
		}
	}
	return ungrouped, err
}
