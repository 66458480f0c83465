package cgroupmetrics

import (
	"strconv"
	"time"

	"github.com/google/cadvisor/lib/model"
	dto "github.com/prometheus/client_model/go"
)

// family is one family of metrics of cgroups: cAdvisor's, by name, labels and value. cAdvisor's own collector describes each
// metric on every scrape, which costs more than reading it; a test proves that this table has the same result.
type family struct {
	name, help string
	kind       dto.MetricType
	labels     []string // in addition to the common labels, sorted
	// values adds the values of a cgroup with figures of CPU and memory.
	values   func(g *builder, i *model.ContainerInfo, s *model.ContainerStats)
	pressure bool // only if the machine supports pressure
	timeless bool // without a timestamp
}

const (
	counter = dto.MetricType_COUNTER
	gauge   = dto.MetricType_GAUGE
)

type (
	statsOf = *model.ContainerStats
	specOf  = *model.ContainerSpec
)

const second = float64(time.Second)

var families = []family{
	ofSpec("container_creation_time_seconds", "Time at which the cgroup was created, in seconds since the epoch.", always,
		func(s specOf) float64 { return float64(s.CreationTime.Unix()) }),
	ofSpec("container_start_time_seconds", "Time at which the container started, in seconds since the epoch.", always,
		func(s specOf) float64 {
			if s.StartTime.IsZero() {
				return float64(s.CreationTime.Unix())
			}
			return float64(s.StartTime.Unix())
		}),
	ofSpec("container_spec_cpu_period", "CFS period of the CPU limit, in microseconds.", hasCPU,
		func(s specOf) float64 { return float64(s.Cpu.Period) }),
	ofSpec("container_spec_cpu_quota", "CFS quota of the CPU limit for each period, in microseconds.",
		func(s specOf) bool { return s.HasCpu && s.Cpu.Quota != 0 }, func(s specOf) float64 { return float64(s.Cpu.Quota) }),
	ofSpec("container_spec_cpu_shares", "CPU shares: the cgroup's weight when CPUs are contended.", hasCPU,
		func(s specOf) float64 { return float64(s.Cpu.Limit) }),
	ofSpec("container_spec_memory_limit_bytes", "Memory limit, in bytes; 0 if there is none.", hasMemory,
		func(s specOf) float64 { return limited(s.Memory.Limit) }),
	ofSpec("container_spec_memory_swap_limit_bytes", "Swap limit, in bytes; 0 if there is none.", hasMemory,
		func(s specOf) float64 { return limited(s.Memory.SwapLimit) }),
	ofSpec("container_spec_memory_reservation_limit_bytes", "Memory reservation, in bytes; 0 if there is none.", hasMemory,
		func(s specOf) float64 { return limited(s.Memory.Reservation) }),

	{name: "container_last_seen", help: "Time at which the cgroup was last seen, in seconds since the epoch.", kind: gauge,
		values: func(g *builder, _ *model.ContainerInfo, _ statsOf) {
			g.addAt(g.now.UnixMilli(), float64(g.now.Unix()))
		}},
	ofAll("container_health_state", "Always -1: the runtime has no container health checks; see the probe metrics.", gauge,
		func(statsOf) float64 { return -1 }),
	ofAll("container_oom_events_total", "Number of processes of the cgroup killed by the OOM killer.", counter,
		func(s statsOf) float64 { return float64(s.OOMEvents) }),

	ofCPU("container_cpu_user_seconds_total", "CPU time in user mode, in core-seconds.",
		func(c *model.CpuStats) float64 { return float64(c.Usage.User) / second }),
	ofCPU("container_cpu_system_seconds_total", "CPU time in kernel mode, in core-seconds.",
		func(c *model.CpuStats) float64 { return float64(c.Usage.System) / second }),
	{name: "container_cpu_usage_seconds_total", help: "CPU time, in core-seconds.", kind: counter, labels: []string{"cpu"},
		values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if s.Cpu.Usage.Total > 0 {
				g.add(float64(s.Cpu.Usage.Total)/second, "total")
			}
		}},
	throttling("container_cpu_cfs_periods_total", "Elapsed CFS enforcement periods.",
		func(c *model.CpuCFS) float64 { return float64(c.Periods) }),
	throttling("container_cpu_cfs_throttled_periods_total", "CFS periods in which the cgroup was throttled.",
		func(c *model.CpuCFS) float64 { return float64(c.ThrottledPeriods) }),
	throttling("container_cpu_cfs_throttled_seconds_total", "Time for which the cgroup was throttled.",
		func(c *model.CpuCFS) float64 { return float64(c.ThrottledTime) / second }),
	throttling("container_cpu_cfs_burst_periods_total", "CFS periods in which the cgroup burst above its quota.",
		func(c *model.CpuCFS) float64 { return float64(c.BurstsPeriods) }),
	throttling("container_cpu_cfs_burst_seconds_total", "CPU time used above the quota in bursts.",
		func(c *model.CpuCFS) float64 { return float64(c.BurstTime) / second }),

	ofMemory("container_memory_cache", "Page cache, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.Cache }),
	ofMemory("container_memory_rss", "Anonymous memory, in bytes.", gauge, func(m *model.MemoryStats) uint64 { return m.RSS }),
	ofMemory("container_memory_kernel_usage", "Kernel memory charged to the cgroup, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.KernelUsage }),
	ofMemory("container_memory_mapped_file", "Memory-mapped files, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.MappedFile }),
	ofMemory("container_memory_swap", "Swap usage, in bytes.", gauge, func(m *model.MemoryStats) uint64 { return m.Swap }),
	ofMemory("container_memory_failcnt", "Number of times the memory limit was hit.", counter,
		func(m *model.MemoryStats) uint64 { return m.Failcnt }),
	ofMemory("container_memory_usage_bytes", "Memory usage, including the page cache, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.Usage }),
	ofMemory("container_memory_max_usage_bytes", "Peak memory usage, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.MaxUsage }),
	ofMemory("container_memory_working_set_bytes", "Working set: memory usage minus inactive file pages, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.WorkingSet }),
	ofMemory("container_memory_total_active_file_bytes", "File pages on the active list, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.TotalActiveFile }),
	ofMemory("container_memory_total_inactive_file_bytes", "File pages on the inactive list, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.TotalInactiveFile }),
	ofMemory("container_memory_events_high_total", "Number of times the cgroup was throttled at memory.high.", counter,
		func(m *model.MemoryStats) uint64 { return m.Events.High }),
	ofMemory("container_memory_events_max_total", "Number of times the cgroup reached memory.max.", counter,
		func(m *model.MemoryStats) uint64 { return m.Events.Max }),
	ofMemory("container_memory_file_dirty_bytes", "Dirty file pages, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.FileDirty }),
	ofMemory("container_memory_file_writeback_bytes", "File pages under writeback, in bytes.", gauge,
		func(m *model.MemoryStats) uint64 { return m.FileWriteback }),
	ofMemory("container_memory_pgscan_total", "Pages scanned for reclaim.", counter,
		func(m *model.MemoryStats) uint64 { return m.Pgscan }),
	ofMemory("container_memory_pgsteal_total", "Pages reclaimed.", counter,
		func(m *model.MemoryStats) uint64 { return m.Pgsteal }),
	ofMemory("container_memory_workingset_refault_file_total", "Refaults of evicted file pages.", counter,
		func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultFile }),
	ofMemory("container_memory_workingset_refault_anon_total", "Refaults of evicted anonymous pages.", counter,
		func(m *model.MemoryStats) uint64 { return m.WorkingsetRefaultAnon }),
	{name: "container_memory_failures_total", help: "Page faults and major page faults.", kind: counter,
		labels: []string{"failure_type", "scope"}, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			own, all := &s.Memory.ContainerData, &s.Memory.HierarchicalData
			g.add(float64(own.Pgfault), "pgfault", "container")
			g.add(float64(own.Pgmajfault), "pgmajfault", "container")
			g.add(float64(all.Pgfault), "pgfault", "hierarchy")
			g.add(float64(all.Pgmajfault), "pgmajfault", "hierarchy")
		}},

	ofDisks("container_fs_inodes_free", "Number of free inodes.", gauge, 1, "", nil,
		func(f *model.FsStats) uint64 { return f.InodesFree }),
	ofDisks("container_fs_inodes_total", "Number of inodes in the file system.", gauge, 1, "", nil,
		func(f *model.FsStats) uint64 { return f.Inodes }),
	ofDisks("container_fs_limit_bytes", "Capacity of the file system, in bytes.", gauge, 1, "", nil,
		func(f *model.FsStats) uint64 { return f.Limit }),
	ofDisks("container_fs_usage_bytes", "Bytes used in the file system.", gauge, 1, "", nil,
		func(f *model.FsStats) uint64 { return f.Usage }),
	ofDisks("container_fs_reads_bytes_total", "Bytes read.", counter, 1, "Read", ioBytes, nil),
	ofDisks("container_fs_reads_total", "Reads completed.", counter, 1, "Read", ioCount,
		func(f *model.FsStats) uint64 { return f.ReadsCompleted }),
	ofDisks("container_fs_sector_reads_total", "Sectors read.", counter, 1, "Read", ioSectors,
		func(f *model.FsStats) uint64 { return f.SectorsRead }),
	ofDisks("container_fs_reads_merged_total", "Reads merged.", counter, 1, "Read", ioMerged,
		func(f *model.FsStats) uint64 { return f.ReadsMerged }),
	ofDisks("container_fs_read_seconds_total", "Time spent reading.", counter, second, "Read", ioTime,
		func(f *model.FsStats) uint64 { return f.ReadTime }),
	ofDisks("container_fs_writes_bytes_total", "Bytes written.", counter, 1, "Write", ioBytes, nil),
	ofDisks("container_fs_writes_total", "Writes completed.", counter, 1, "Write", ioCount,
		func(f *model.FsStats) uint64 { return f.WritesCompleted }),
	ofDisks("container_fs_sector_writes_total", "Sectors written.", counter, 1, "Write", ioSectors,
		func(f *model.FsStats) uint64 { return f.SectorsWritten }),
	ofDisks("container_fs_writes_merged_total", "Writes merged.", counter, 1, "Write", ioMerged,
		func(f *model.FsStats) uint64 { return f.WritesMerged }),
	ofDisks("container_fs_write_seconds_total", "Time spent writing.", counter, second, "Write", ioTime,
		func(f *model.FsStats) uint64 { return f.WriteTime }),
	ofDisks("container_fs_io_current", "I/O operations in progress.", gauge, 1, "Total",
		func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoQueued },
		func(f *model.FsStats) uint64 { return f.IoInProgress }),
	ofDisks("container_fs_io_time_seconds_total", "Time with I/O in progress.", counter, second, "Total", ioTime,
		func(f *model.FsStats) uint64 { return f.IoTime }),
	ofDisks("container_fs_io_time_weighted_seconds_total",
		"Weighted time spent on I/O: each operation in progress counts.", counter, second, "", nil,
		func(f *model.FsStats) uint64 { return f.WeightedIoTime }),
	ofDisks("container_fs_io_cost_usage_seconds_total",
		"Device time charged by the kernel's I/O cost model (io.cost).", counter, 1e6, "Count",
		func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostUsage }, nil),
	ofDisks("container_fs_io_cost_wait_seconds_total",
		"Time spent waiting for I/O, by the kernel's I/O cost model (io.cost).", counter, 1e6, "Count",
		func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostWait }, nil),
	ofDisks("container_fs_io_cost_indebt_seconds_total",
		"Time in debt, by the kernel's I/O cost model (io.cost).", counter, 1e6, "Count",
		func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostIndebt }, nil),
	ofDisks("container_fs_io_cost_indelay_seconds_total",
		"Time delayed, by the kernel's I/O cost model (io.cost).", counter, 1e6, "Count",
		func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostIndelay }, nil),
	{name: "container_blkio_device_usage_total", help: "Bytes read from and written to a block device.", kind: counter,
		labels: []string{"device", "major", "minor", "operation"}, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if s.DiskIo == nil {
				return
			}
			for _, d := range s.DiskIo.IoServiceBytes {
				for what, n := range d.Stats {
					g.add(float64(n), d.Device, strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10), what)
				}
			}
		}},

	ofNetwork("container_network_receive_bytes_total", "Bytes received.",
		func(n *model.InterfaceStats) uint64 { return n.RxBytes }),
	ofNetwork("container_network_receive_packets_total", "Packets received.",
		func(n *model.InterfaceStats) uint64 { return n.RxPackets }),
	ofNetwork("container_network_receive_packets_dropped_total", "Packets dropped while receiving.",
		func(n *model.InterfaceStats) uint64 { return n.RxDropped }),
	ofNetwork("container_network_receive_errors_total", "Errors while receiving.",
		func(n *model.InterfaceStats) uint64 { return n.RxErrors }),
	ofNetwork("container_network_transmit_bytes_total", "Bytes sent.", func(n *model.InterfaceStats) uint64 { return n.TxBytes }),
	ofNetwork("container_network_transmit_packets_total", "Packets sent.",
		func(n *model.InterfaceStats) uint64 { return n.TxPackets }),
	ofNetwork("container_network_transmit_packets_dropped_total", "Packets dropped while sending.",
		func(n *model.InterfaceStats) uint64 { return n.TxDropped }),
	ofNetwork("container_network_transmit_errors_total", "Errors while sending.",
		func(n *model.InterfaceStats) uint64 { return n.TxErrors }),

	ofProcesses("container_processes", "Number of processes.", func(p *model.ProcessStats) uint64 { return p.ProcessCount }),
	ofProcesses("container_file_descriptors",
		"Number of open file descriptors.", func(p *model.ProcessStats) uint64 { return p.FdCount }),
	ofProcesses("container_sockets", "Number of open sockets.", func(p *model.ProcessStats) uint64 { return p.SocketCount }),
	ofProcesses("container_threads_max", "Maximum number of threads; 0 if there is no limit.",
		func(p *model.ProcessStats) uint64 { return p.ThreadsMax }),
	ofProcesses("container_threads", "Number of threads.", func(p *model.ProcessStats) uint64 { return p.ThreadsCurrent }),
	{name: "container_ulimits_soft", help: "Soft ulimits of the container's first process; -1 means unlimited.", kind: gauge,
		labels: []string{"ulimit"}, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if s.Processes == nil {
				return
			}
			for _, u := range s.Processes.Ulimits {
				g.add(float64(u.SoftLimit), u.Name)
			}
		}},

	ofPressure("container_pressure_cpu_stalled_seconds_total", "Time in which all tasks were stalled on CPU.",
		func(s statsOf) uint64 { return s.Cpu.PSI.Full.Total }),
	ofPressure("container_pressure_cpu_waiting_seconds_total", "Time in which at least one task waited for CPU.",
		func(s statsOf) uint64 { return s.Cpu.PSI.Some.Total }),
	ofPressure("container_pressure_memory_stalled_seconds_total", "Time in which all tasks were stalled on memory.",
		func(s statsOf) uint64 { return s.Memory.PSI.Full.Total }),
	ofPressure("container_pressure_memory_waiting_seconds_total", "Time in which at least one task waited for memory.",
		func(s statsOf) uint64 { return s.Memory.PSI.Some.Total }),
	ofIOPressure("container_pressure_io_stalled_seconds_total", "Time in which all tasks were stalled on I/O.",
		func(d *model.DiskIoStats) uint64 { return d.PSI.Full.Total }),
	ofIOPressure("container_pressure_io_waiting_seconds_total", "Time in which at least one task waited for I/O.",
		func(d *model.DiskIoStats) uint64 { return d.PSI.Some.Total }),
}
