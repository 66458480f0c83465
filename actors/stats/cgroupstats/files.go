package cgroupstats

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"time"

	"github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
)

// cgroupFile is a file of a cgroup, with a function to store its figures or limits in cAdvisor's model.
type cgroupFile[T any] struct {
	controller, name string // version 2 has the single controller ""
	into             func(to *T, text []byte)
	must             bool // always present in a cgroup of this controller
}

type (
	figureFile = cgroupFile[model.ContainerStats]
	limitFile  = cgroupFile[model.ContainerSpec]
)

// filesV1 and filesV2 are the files read of a cgroup, except its limits and its processes. cAdvisor's library reads four times as
// many of version 1 and twice as many of version 2, of which it then uses these. A test compares.
var (
	filesV1 = []figureFile{
		{"cpuacct", "cpuacct.usage", func(s *model.ContainerStats, t []byte) { s.Cpu.Usage.Total = number(t) }, true},
		{"cpuacct", "cpuacct.stat", cpuTimes, false},
		{"cpu", "cpu.stat", cpuStat, false},
		{"memory", "memory.stat", memoryStat, false},
		{"memory", "memory.usage_in_bytes", func(s *model.ContainerStats, t []byte) { s.Memory.Usage = number(t) }, true},
		{"memory", "memory.max_usage_in_bytes", func(s *model.ContainerStats, t []byte) { s.Memory.MaxUsage = number(t) }, false},
		{"memory", "memory.failcnt", func(s *model.ContainerStats, t []byte) { s.Memory.Failcnt = number(t) }, false},
		{"memory", "memory.kmem.usage_in_bytes",
			func(s *model.ContainerStats, t []byte) { s.Memory.KernelUsage = number(t) }, false},
		{"memory", "memory.oom_control", memoryEvents, false},
		{"pids", "pids.current", func(s *model.ContainerStats, t []byte) { s.Processes.ThreadsCurrent = number(t) }, false},
		{"blkio", "blkio.throttle.io_serviced_recursive",
			func(s *model.ContainerStats, t []byte) { s.DiskIo.IoServiced = disksV1(t) }, false},
		{"blkio", "blkio.throttle.io_service_bytes_recursive",
			func(s *model.ContainerStats, t []byte) { s.DiskIo.IoServiceBytes = disksV1(t) }, false},
	}
	filesV2 = []figureFile{
		{"", "cpu.stat", cpuStat, true},
		{"", "memory.stat", memoryStat, false},
		{"", "memory.current", func(s *model.ContainerStats, t []byte) { s.Memory.Usage = number(t) }, false},
		{"", "memory.peak", func(s *model.ContainerStats, t []byte) { s.Memory.MaxUsage = number(t) }, false},
		{"", "memory.swap.current", func(s *model.ContainerStats, t []byte) { s.Memory.Swap = number(t) }, false},
		{"", "memory.events", memoryEvents, false},
		{"", "memory.events.local", localMemoryEvents, false}, // after memory.events; missing in kernels before 5.2
		{"", "pids.current", func(s *model.ContainerStats, t []byte) { s.Processes.ThreadsCurrent = number(t) }, false},
		{"", "io.stat", disksV2, false},
		{"", "cpu.pressure", func(s *model.ContainerStats, t []byte) { pressure(&s.Cpu.PSI, t) }, false},
		{"", "memory.pressure", func(s *model.ContainerStats, t []byte) { pressure(&s.Memory.PSI, t) }, false},
		{"", "io.pressure", func(s *model.ContainerStats, t []byte) { pressure(&s.DiskIo.PSI, t) }, false},
	}
)

// limitsV1 and limitsV2 are the limits of a cgroup, which may change during its life.
var (
	limitsV1 = []limitFile{
		{"cpu", "cpu.shares", func(s *model.ContainerSpec, t []byte) { s.Cpu.Limit = number(t) }, false},
		{"cpu", "cpu.cfs_period_us", func(s *model.ContainerSpec, t []byte) { s.Cpu.Period = number(t) }, false},
		{"cpu", "cpu.cfs_quota_us", func(s *model.ContainerSpec, t []byte) { s.Cpu.Quota = number(t) }, false}, // -1 means none
		{"memory", "memory.limit_in_bytes", func(s *model.ContainerSpec, t []byte) { s.Memory.Limit = number(t) }, false},
		{"memory", "memory.memsw.limit_in_bytes",
			func(s *model.ContainerSpec, t []byte) { s.Memory.SwapLimit = number(t) }, false},
		{"memory", "memory.soft_limit_in_bytes",
			func(s *model.ContainerSpec, t []byte) { s.Memory.Reservation = number(t) }, false},
		{"pids", "pids.max", func(s *model.ContainerSpec, t []byte) { s.Processes.Limit = number(t) }, false},
	}
	limitsV2 = []limitFile{
		// Converted to shares of version 1, by the kubelet's rule (KEP-2254).
		{"", "cpu.weight", func(s *model.ContainerSpec, t []byte) {
			s.Cpu.Limit = 2 + (min(max(number(t), 1), 10000)-1)*262142/9999 // an idle cgroup has weight 0
		}, false},
		{"", "cpu.max", func(s *model.ContainerSpec, t []byte) {
			quota, period, _ := bytes.Cut(t, []byte(" "))
			if s.Cpu.Quota, s.Cpu.Period = number(quota), number(period); s.Cpu.Quota == math.MaxUint64 {
				s.Cpu.Quota = 0
			}
		}, false},
		{"", "memory.min", func(s *model.ContainerSpec, t []byte) { s.Memory.Reservation = number(t) }, false},
		{"", "memory.max", func(s *model.ContainerSpec, t []byte) { s.Memory.Limit = number(t) }, false},
		{"", "memory.swap.max", func(s *model.ContainerSpec, t []byte) { s.Memory.SwapLimit = number(t) }, false},
		{"", "pids.max", func(s *model.ContainerSpec, t []byte) { s.Processes.Limit = number(t) }, false},
	}
)

// schedulers are files that the library prefers to filesV1 if a disk's scheduler reports cgroups, as do old kernels and BFQ. In
// this case the library reads the cgroup.
var schedulers = []string{"blkio.bfq.sectors_recursive", "blkio.bfq.io_serviced_recursive", "blkio.sectors_recursive"}

// filesFor returns the files to read on a machine with these mounts, or nil if the library has to read them.
func filesFor(mounts map[string]string) []figureFile {
	if _, unified := mounts[""]; unified {
		return filesV2
	}
	for _, name := range schedulers {
		text, err := os.ReadFile(path.Join(mounts["blkio"], name))
		if err == nil && bytes.Contains(text, []byte(":")) { // a disk, "8:0"
			return nil
		}
	}
	return filesV1
}

// kernelFiles reads generated files of the kernel, one at a time, into a shared buffer.
type kernelFiles struct{ buffer []byte }

// read returns a file's text, which is valid until the next read.
func (k *kernelFiles) read(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // read-only
	for n := 0; ; {
		if n == len(k.buffer) {
			k.buffer = slices.Grow(k.buffer, max(n, 16<<10))[:max(2*n, 16<<10)]
		}
		more, err := unix.Read(fd, k.buffer[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case more == 0:
			return k.buffer[:n], nil
		default:
			n += more
		}
	}
}

// readFiles reads the existing files of a cgroup.
func readFiles[T any](k *kernelFiles, files []cgroupFile[T], dirs map[string]int, to *T) error {
	for i := range files {
		f := &files[i]
		dir, ok := dirs[f.controller]
		if !ok {
			continue
		}
		text, err := k.read(dir, f.name)
		switch {
		case err == nil:
			f.into(to, text)
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, fs.ErrNotExist) && !f.must: // missing in this kernel
		default:
			return goneOr(err)
		}
	}
	return nil
}

// figures reads a cgroup other than the root.
func (r *Reader) figures(g cgroupAt, network bool, spec *model.ContainerSpec) (*model.ContainerStats, error) {
	a := &struct { // one allocation
		stats     model.ContainerStats
		cpu       model.CpuStats
		memory    model.MemoryStats
		disks     model.DiskIoStats
		processes model.ProcessStats
	}{}
	s := &a.stats
	s.Timestamp, s.Cpu, s.Memory, s.DiskIo, s.Processes = time.Now(), &a.cpu, &a.memory, &a.disks, &a.processes
	if err := readFiles(&r.kernel, r.files, g.dirs, s); err != nil {
		return nil, err
	}
	s.Memory.WorkingSet = s.Memory.Usage - min(s.Memory.TotalInactiveFile, s.Memory.Usage)
	// Read last: a cgroup that still has it existed all the time.
	text, err := r.kernel.read(g.dirs[controllerOf(g.dirs)], "cgroup.procs")
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup
		return nil, goneOr(err)
	}
	r.processes(s, text, network, spec)
	return s, nil
}

// goneOr returns fs.ErrNotExist for a cgroup that was removed while it was read, else err.
func goneOr(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	return err
}

// processes adds the figures of a cgroup's processes; text is its cgroup.procs.
func (r *Reader) processes(s *model.ContainerStats, text []byte, network bool, spec *model.ContainerSpec) {
	r.pids = r.pids[:0]
	for line := range bytes.Lines(text) {
		r.pids = append(r.pids, string(bytes.TrimSpace(line)))
	}
	p := s.Processes
	p.ProcessCount = uint64(len(r.pids))
	if limit := spec.Processes.Limit; limit != math.MaxUint64 {
		p.ThreadsMax = limit
	}
	if p.ThreadsCurrent == 0 { // version 2 without the controller
		p.ThreadsCurrent = p.ProcessCount
	}
	for i, pid := range r.pids {
		dir, err := unix.Open(path.Join(r.Root, "proc", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has ended
		}
		r.descriptors(p, dir)
		if i == 0 {
			if text, err := r.kernel.read(dir, "limits"); err == nil {
				p.Ulimits = mostFiles(text)
			}
			if network {
				s.Network = &model.NetworkStats{}
				if text, err := r.kernel.read(dir, "net/dev"); err == nil {
					s.Network.Interfaces = interfaces(text)
				}
				if len(s.Network.Interfaces) > 0 {
					s.Network.InterfaceStats = s.Network.Interfaces[0]
				}
			}
		}
		_ = unix.Close(dir)
	}
}

// descriptors counts a process's open files, and the sockets among them.
func (r *Reader) descriptors(p *model.ProcessStats, process int) {
	dir, err := unix.Openat(process, "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(dir) }() // read-only
	r.kernel.buffer = slices.Grow(r.kernel.buffer, 16<<10)[:max(len(r.kernel.buffer), 16<<10)]
	for {
		n, err := unix.ReadDirent(dir, r.kernel.buffer)
		if err != nil || n <= 0 {
			return
		}
		_, _, r.names = unix.ParseDirent(r.kernel.buffer[:n], -1, r.names[:0])
		var to [16]byte
		for _, name := range r.names {
			p.FdCount++
			if n, err := unix.Readlinkat(dir, name, to[:]); err == nil && bytes.HasPrefix(to[:n], []byte("socket")) {
				p.SocketCount++
			}
		}
	}
}
