// Package cgroupstats reads the figures of cgroups into cAdvisor's model: the node's, and those of pods and their containers.
//
// cAdvisor's library reads the root and a new cgroup's limits; all else is a table of files (files.go), since the library opens
// four times as many as it uses. cAdvisor's manager is not used: it runs two goroutines per container that collect figures
// without a reader. Tests compare the table with the library.
package cgroupstats

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/container/libcontainer"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Metrics are the metrics that the kubelet enables in cAdvisor.
var Metrics = sync.OnceValue(func() container.MetricSet {
	return MetricsFor(hasPressure("/sys/fs/cgroup"))
})

// hasPressure reports whether the kernel measures pressure. Kernels before 6.1 have the files also with psi=0, the default of
// some distributions, and then refuse to read them.
func hasPressure(hierarchy string) bool {
	_, err := os.ReadFile(filepath.Join(hierarchy, "cpu.pressure"))
	return err == nil
}

// MetricsFor returns Metrics for a machine with or without support of pressure.
func MetricsFor(pressure bool) container.MetricSet {
	out := container.MetricSet{
		container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {},
		container.DiskUsageMetrics: {}, container.NetworkUsageMetrics: {}, container.ProcessMetrics: {}, container.OOMMetrics: {},
	}
	if pressure { // version 1 and a kernel with psi=0 have none: its families would be zeros
		out[container.PressureMetrics] = struct{}{}
	}
	return out
}

// Cgroup is a reading of one cgroup. Immutable.
type Cgroup struct {
	Info    *model.ContainerInfo // its name is the path; it has at most one sample
	Pod     string               // UID of the pod to which it or its parent belongs
	ID      string               // of the container or sandbox; empty for the pod's own
	Sandbox bool                 // set for the cgroup of a sandbox
	Cores   *uint64              // billionths of a core used since the previous reading; nil without one
}

// Stats returns its figures, or nil.
func (c *Cgroup) Stats() *model.ContainerStats {
	if c == nil || len(c.Info.Stats) == 0 {
		return nil
	}
	return c.Info.Stats[0]
}

// Set is one reading of all relevant cgroups, by path.
type Set map[string]*Cgroup

// Reader reads cgroups. It is not safe for concurrent use.
type Reader struct {
	Mounts   map[string]string // mount points by controller; "" is the only key of version 2
	Root     string            // the parent of /proc
	PID      int               // a process on the node's network
	Kubepods func() string     // path of the cgroup of all pods; empty if there is none
	System   func() []string   // paths of further relevant cgroups
	// Containers returns the IDs of known containers; others in a pod's cgroup are sandboxes.
	Containers func() map[string]bool
	Now        func() time.Time

	machine   model.MachineInfo // only the fields needed to read cgroups
	machineAt time.Time

	files  []figureFile // the files to read; nil if the library reads
	kernel kernelFiles
	pids   []string // of the cgroup that is being read
	names  []string // of open files

	before map[string]cpuTime   // of the previous reading
	specs  map[string]knownSpec // of the cgroups of the previous reading
}

// disksAge is the maximum age of the names of disks.
const disksAge = 5 * time.Minute

// cpuTime is the CPU time of a cgroup as of a time.
type cpuTime struct {
	at    time.Time
	total uint64 // ns
}

// longestRate is the longest interval for a rate. A longer one has no rate, because it would not describe the present.
const longestRate = 10 * time.Minute

// Read reads the root, the cgroups of pods with their children, and the further ones. It omits cgroups that are removed in the
// meantime. The error names the unreadable ones; the others are returned all the same.
func (r *Reader) Read() (Set, error) {
	r.readMachine()
	r.files = filesFor(r.Mounts)
	set := Set{}
	var errs []error
	add := func(c Cgroup, name string, network bool) {
		if _, there := set[name]; there {
			return
		}
		info, err := r.one(name, network)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("cgroup %s: %w", name, err))
		case info != nil:
			c.Info = info
			set[name] = &c
		}
	}
	add(Cgroup{}, "/", true)
	for _, name := range r.System() {
		add(Cgroup{}, name, false)
	}
	if top := r.Kubepods(); top != "" && top != "/" {
		known := r.Containers()
		r.walk(top, 0, func(name string) { add(Cgroup{}, name, false) }, func(uid, name string) {
			add(Cgroup{Pod: uid}, name, false)
			ids := r.children(name)
			sandbox := r.sandbox(name, ids, known)
			for _, literal := range ids {
				if id := containerID(literal); known[id] || literal == sandbox {
					add(Cgroup{Pod: uid, ID: id, Sandbox: literal == sandbox}, path.Join(name, literal), literal == sandbox)
				}
			}
		})
	}
	r.rates(set)
	maps.DeleteFunc(r.specs, func(name string, _ knownSpec) bool { return set[name] == nil })
	return set, errors.Join(errs...)
}

// one reads one cgroup. Network figures come from a process in it; the node's come from the agent.
func (r *Reader) one(name string, network bool) (*model.ContainerInfo, error) {
	g := cgroupAt{r.Mounts, name, make(map[string]int, len(r.Mounts))}
	defer func() {
		for _, dir := range g.dirs {
			_ = unix.Close(dir) // O_PATH: nothing was written
		}
	}()
	for controller, mount := range r.Mounts {
		if name == "/" && controller == "pids" {
			continue // the root has none
		}
		if dir, err := unix.Open(mount+name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			g.dirs[controller] = dir
		}
	}
	if len(g.dirs) == 0 {
		return nil, fs.ErrNotExist
	}
	spec, err := r.spec(g)
	if err != nil {
		return nil, err
	}
	read := r.figures
	if name == "/" || r.files == nil {
		read = r.byLibrary
	}
	stats, err := read(g, network, &spec)
	if err != nil {
		return nil, err
	}
	spec.HasNetwork = stats.Network != nil
	if stats.DiskIo != nil {
		common.AssignDeviceNamesToDiskStats((*common.MachineInfoNamer)(&r.machine), stats.DiskIo)
	}
	return &model.ContainerInfo{
		ContainerReference: model.ContainerReference{Name: name}, Spec: spec, Stats: []*model.ContainerStats{stats},
	}, nil
}

// cgroupAt locates a cgroup.
type cgroupAt struct {
	mounts map[string]string
	name   string
	dirs   map[string]int // descriptors of its folders, by controller
}

// paths returns its folders, by controller.
func (g cgroupAt) paths() map[string]string {
	out := make(map[string]string, len(g.dirs))
	for controller := range g.dirs {
		out[controller] = path.Join(g.mounts[controller], g.name)
	}
	return out
}

// byLibrary reads a cgroup through cAdvisor's library: the root, which has files of its own, and cgroups on machines without a
// table of files.
func (r *Reader) byLibrary(g cgroupAt, network bool, _ *model.ContainerSpec) (*model.ContainerStats, error) {
	paths, pid := g.paths(), r.PID
	if g.name != "/" {
		pid = firstProcess(paths)
	}
	metrics := Metrics()
	if !network || pid == 0 {
		metrics = common.RemoveNetMetrics(metrics, true)
	}
	manager, err := libcontainer.NewCgroupManager(g.name, paths)
	if err != nil {
		return nil, err
	}
	stats, err := libcontainer.NewHandler(manager, r.Root, pid, metrics).GetStats()
	if err != nil {
		if _, gone := os.Stat(dirOf(paths)); errors.Is(gone, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		return nil, err
	}
	if !network {
		stats.Network = nil
	}
	for _, f := range []struct{ controller, name string }{{"", "memory.events"}, {"memory", "memory.oom_control"}} {
		if dir, ok := g.dirs[f.controller]; ok {
			if text, err := r.kernel.read(dir, f.name); err == nil {
				memoryEvents(stats, text)
			}
		}
	}
	return stats, nil
}

// readMachine reads the names of disks, which may change. It accesses no file system, since one may hang.
func (r *Reader) readMachine() {
	if now := r.Now(); r.machineAt.IsZero() || now.Sub(r.machineAt) >= disksAge {
		r.machineAt, r.machine.NumCores = now, runtime.NumCPU()
		if disks, err := sysinfo.GetBlockDeviceInfo(sysfs.NewRealSysFs()); err == nil {
			r.machine.DiskMap = disks
		}
	}
}

// GetMachineInfo implements model.MachineInfoFactory, for the library.
func (r *Reader) GetMachineInfo() (*model.MachineInfo, error) { return &r.machine, nil }

// GetVersionInfo implements model.MachineInfoFactory; it is not called.
func (r *Reader) GetVersionInfo() (*model.VersionInfo, error) {
	return nil, errors.ErrUnsupported
}

// rates computes the CPU usage since the previous reading, and keeps this one for the next.
func (r *Reader) rates(set Set) {
	now := make(map[string]cpuTime, len(set))
	for name, c := range set {
		s := c.Stats()
		if s == nil || s.Cpu == nil {
			continue
		}
		now[name] = cpuTime{s.Timestamp, s.Cpu.Usage.Total}
		c.Cores = rate(r.before[name], now[name])
	}
	r.before = now
}

// rate returns billionths of a core, or nil if unknown.
func rate(before, now cpuTime) *uint64 {
	passed := now.at.Sub(before.at)
	if before.at.IsZero() || passed <= 0 || passed > longestRate || now.total < before.total {
		return nil
	}
	out := uint64(float64(now.total-before.total) / passed.Seconds())
	return &out
}

// Mounts returns the mount points of the controllers.
func Mounts() (map[string]string, error) {
	mounts, err := libcontainer.GetCgroupSubsystems(Metrics())
	if err != nil {
		return nil, fmt.Errorf("no cgroups are mounted: %w", err)
	}
	delete(mounts, "devices")
	return mounts, nil
}

// Unified reports whether the machine has cgroup version 2.
func Unified() bool { return library.IsCgroup2UnifiedMode() }
