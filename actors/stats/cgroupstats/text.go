package cgroupstats

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/model"
)

// number parses a file with one number; "max" is the largest.
func number(text []byte) uint64 {
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return math.MaxUint64
	}
	var n uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// pairs calls each for every line with a key and a number. key is valid during the call; a switch over string(key) does not copy
// it.
func pairs(text []byte, each func(key []byte, n uint64)) {
	for line := range bytes.Lines(text) {
		if key, value, ok := bytes.Cut(line, []byte(" ")); ok {
			each(key, number(value))
		}
	}
}

// cpuTimes parses cpuacct.stat, which counts hundredths of seconds (proc(5), USER_HZ).
func cpuTimes(s *model.ContainerStats, text []byte) {
	pairs(text, func(key []byte, n uint64) {
		switch string(key) {
		case "user":
			s.Cpu.Usage.User = n * 1e7
		case "system":
			s.Cpu.Usage.System = n * 1e7
		}
	})
}

func cpuStat(s *model.ContainerStats, text []byte) {
	u, t := &s.Cpu.Usage, &s.Cpu.CFS
	pairs(text, func(key []byte, n uint64) {
		switch string(key) {
		case "usage_usec":
			u.Total = n * 1000
		case "user_usec":
			u.User = n * 1000
		case "system_usec":
			u.System = n * 1000
		case "nr_periods":
			t.Periods = n
		case "nr_throttled":
			t.ThrottledPeriods = n
		case "throttled_time":
			t.ThrottledTime = n
		case "throttled_usec":
			t.ThrottledTime = n * 1000
		case "nr_bursts":
			t.BurstsPeriods = n
		case "burst_usec":
			t.BurstTime = n * 1000
		}
	})
}

// memoryStat parses both versions. In version 1 the keys of the whole subtree begin with total, and come last.
func memoryStat(s *model.ContainerStats, text []byte) {
	m := s.Memory
	pairs(text, func(key []byte, n uint64) {
		switch string(key) {
		case "file", "total_cache":
			m.Cache = n
		case "anon", "total_rss":
			m.RSS = n
		case "total_swap":
			m.Swap = n
		case "file_mapped", "total_mapped_file":
			m.MappedFile = n
		case "pgfault":
			m.ContainerData.Pgfault, m.HierarchicalData.Pgfault = n, n
		case "pgmajfault":
			m.ContainerData.Pgmajfault, m.HierarchicalData.Pgmajfault = n, n
		case "file_dirty":
			m.FileDirty = n
		case "file_writeback":
			m.FileWriteback = n
		case "pgscan":
			m.Pgscan = n
		case "pgsteal":
			m.Pgsteal = n
		case "workingset_refault_file":
			m.WorkingsetRefaultFile = n
		case "workingset_refault_anon":
			m.WorkingsetRefaultAnon = n
		case "active_file", "total_active_file":
			m.TotalActiveFile = n
		case "inactive_file", "total_inactive_file":
			m.TotalInactiveFile = n
		}
	})
}

// memoryEvents parses memory.events, and memory.oom_control of version 1. It counts the OOM kills of the cgroup itself; cAdvisor
// counts lines of the kernel's log, which requires a permanent reader.
func memoryEvents(s *model.ContainerStats, text []byte) {
	pairs(text, func(key []byte, n uint64) {
		switch string(key) {
		case "high":
			s.Memory.Events.High = n
		case "max":
			s.Memory.Events.Max = n
		case "oom_kill":
			s.OOMEvents = n
		}
	})
}

// localMemoryEvents parses memory.events.local, which excludes child cgroups.
func localMemoryEvents(s *model.ContainerStats, text []byte) {
	pairs(text, func(key []byte, n uint64) {
		if string(key) == "oom_kill" {
			s.OOMEvents = n
		}
	})
}

// disk finds or adds the figures of a disk, "8:0".
func disk(all *[]model.PerDiskStats, device []byte) map[string]uint64 {
	a, b, ok := bytes.Cut(device, []byte(":"))
	if !ok {
		return nil
	}
	major, minor := number(a), number(b)
	for i := range *all {
		if d := &(*all)[i]; d.Major == major && d.Minor == minor {
			return d.Stats
		}
	}
	stats := map[string]uint64{}
	*all = append(*all, model.PerDiskStats{Major: major, Minor: minor, Stats: stats})
	return stats
}

// operations are the kernel's terms for disk operations, to avoid allocations.
var operations = map[string]string{
	"Read": "Read", "Write": "Write", "Sync": "Sync", "Async": "Async", "Discard": "Discard", "Total": "Total",
}

// disksV1 parses lines such as "8:0 Read 4096".
func disksV1(text []byte) (all []model.PerDiskStats) {
	for line := range bytes.Lines(text) {
		device, rest, _ := bytes.Cut(line, []byte(" "))
		what, n, ok := bytes.Cut(rest, []byte(" "))
		if what := operations[string(what)]; ok && what != "" {
			if stats := disk(&all, device); stats != nil {
				stats[what] = number(n)
			}
		}
	}
	return all
}

// disksV2 parses lines such as "8:0 rbytes=4096 wbytes=0".
func disksV2(s *model.ContainerStats, text []byte) {
	for line := range bytes.Lines(text) {
		device, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		for item := range bytes.FieldsSeq(rest) {
			key, value, _ := bytes.Cut(item, []byte("="))
			to, what := (*[]model.PerDiskStats)(nil), "Count"
			switch string(key) {
			case "rbytes":
				to, what = &s.DiskIo.IoServiceBytes, "Read"
			case "wbytes":
				to, what = &s.DiskIo.IoServiceBytes, "Write"
			case "rios":
				to, what = &s.DiskIo.IoServiced, "Read"
			case "wios":
				to, what = &s.DiskIo.IoServiced, "Write"
			case "cost.usage":
				to = &s.DiskIo.IoCostUsage
			case "cost.wait":
				to = &s.DiskIo.IoCostWait
			case "cost.indebt":
				to = &s.DiskIo.IoCostIndebt
			case "cost.indelay":
				to = &s.DiskIo.IoCostIndelay
			default:
				continue
			}
			if stats := disk(to, device); stats != nil {
				stats[what] = number(value)
			}
		}
	}
}

// pressure parses lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func pressure(p *model.PSIStats, text []byte) {
	for line := range bytes.Lines(text) {
		d := &model.PSIData{}
		for field := range bytes.FieldsSeq(line) {
			key, value, _ := bytes.Cut(field, []byte("="))
			switch string(key) {
			case "some":
				d = &p.Some
			case "full":
				d = &p.Full
			case "total":
				d.Total = number(value)
			case "avg10":
				d.Avg10 = average(value)
			case "avg60":
				d.Avg60 = average(value)
			case "avg300":
				d.Avg300 = average(value)
			}
		}
	}
}

func average(text []byte) float64 {
	f, _ := strconv.ParseFloat(string(text), 64) // the kernel writes numbers
	return f
}

// mostInterfaces limits the interfaces of one cgroup: a pod may create any number.
const mostInterfaces = 1024

// uncounted are prefixes of interfaces that the kubelet does not count.
var uncounted = []string{"lo", "veth", "docker", "nerdctl"}

// interfaces parses /proc/<pid>/net/dev, proc_pid_net(5): two lines of headings, then a name and sixteen numbers per line.
func interfaces(text []byte) (out []model.InterfaceStats) {
	for line := range bytes.Lines(text) {
		title, rest, ok := bytes.Cut(line, []byte(":"))
		n := bytes.Fields(rest)
		if !ok || len(n) != 16 {
			continue
		}
		if len(out) == mostInterfaces {
			break
		}
		i := model.InterfaceStats{Name: strings.ToValidUTF8(string(bytes.TrimSpace(title)), "\uFFFD")}
		if slices.ContainsFunc(uncounted, func(p string) bool { return strings.HasPrefix(strings.ToLower(i.Name), p) }) {
			continue
		}
		i.RxBytes, i.RxPackets, i.RxErrors, i.RxDropped = number(n[0]), number(n[1]), number(n[2]), number(n[3])
		i.TxBytes, i.TxPackets, i.TxErrors, i.TxDropped = number(n[8]), number(n[9]), number(n[10]), number(n[11])
		out = append(out, i)
	}
	return out
}

// mostFiles parses the limit of open files in /proc/<pid>/limits, proc_pid_limits(5); -1 means no limit.
func mostFiles(text []byte) []model.UlimitSpec {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		limit := func(text []byte) int64 {
			n, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
		if f := bytes.Fields(rest); len(f) == 3 {
			return []model.UlimitSpec{{Name: "max_open_files", SoftLimit: limit(f[0]), HardLimit: limit(f[1])}}
		}
	}
	return nil
}

// Unlimited is the least value that means no limit of memory: it is more than any machine has. The kernel rounds the largest
// number down.
const Unlimited = 1<<62 + 1
