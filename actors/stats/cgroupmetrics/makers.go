package cgroupmetrics

import (
	"github.com/google/cadvisor/lib/model"
	dto "github.com/prometheus/client_model/go"

	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// ofAll returns a family with one value per cgroup.
func ofAll(name, help string, kind dto.MetricType, value func(s statsOf) float64) family {
	return family{name: name, help: help, kind: kind, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
		g.add(value(s))
	}}
}

func ofCPU(name, help string, value func(c *model.CpuStats) float64) family {
	return family{name: name, help: help, kind: counter, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
		g.add(value(s.Cpu))
	}}
}

// throttling returns a family of cgroups with a limit of CPU.
func throttling(name, help string, value func(c *model.CpuCFS) float64) family {
	return family{name: name, help: help, kind: counter, values: func(g *builder, i *model.ContainerInfo, s statsOf) {
		if i.Spec.Cpu.Quota != 0 {
			g.add(value(&s.Cpu.CFS))
		}
	}}
}

func ofMemory(name, help string, kind dto.MetricType, value func(m *model.MemoryStats) uint64) family {
	return family{name: name, help: help, kind: kind, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
		g.add(float64(value(s.Memory)))
	}}
}

func ofProcesses(name, help string, value func(p *model.ProcessStats) uint64) family {
	return family{name: name, help: help, kind: gauge, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
		if s.Processes != nil {
			g.add(float64(value(s.Processes)))
		}
	}}
}

var ofDevice = []string{"device"}

// ofDisks returns a family of a cgroup's figures of disks, in units of a base unit, and of the node's file systems; either may be
// nil.
func ofDisks(
	name, help string, kind dto.MetricType, unit float64, what string, disks func(d *model.DiskIoStats) []model.PerDiskStats,
	mounted func(f *model.FsStats) uint64,
) family {
	return family{
		name: name, help: help, kind: kind, labels: ofDevice, values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if disks != nil {
				if s.DiskIo == nil {
					return
				}
				all := disks(s.DiskIo)
				for i := range all {
					g.add(float64(all[i].Stats[what])/unit, all[i].Device)
				}
			}
			for i := range s.Filesystem {
				if mounted != nil {
					g.add(float64(mounted(&s.Filesystem[i]))/unit, s.Filesystem[i].Device)
				}
			}
		},
	}
}

func ofNetwork(name, help string, value func(n *model.InterfaceStats) uint64) family {
	return family{name: name, help: help, kind: counter, labels: []string{"interface"},
		values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if s.Network == nil {
				return
			}
			for i := range s.Network.Interfaces {
				g.add(float64(value(&s.Network.Interfaces[i])), s.Network.Interfaces[i].Name)
			}
		}}
}

// ofPressure returns a family of pressure in microseconds, if the machine supports it.
func ofPressure(name, help string, value func(s statsOf) uint64) family {
	f := ofAll(name, help, counter, func(s statsOf) float64 { return float64(value(s)) / 1e6 })
	f.pressure = true
	return f
}

// ofIOPressure returns the pressure of disks, which the CRI does not report.
func ofIOPressure(name, help string, value func(d *model.DiskIoStats) uint64) family {
	return family{name: name, help: help, kind: counter, pressure: true,
		values: func(g *builder, _ *model.ContainerInfo, s statsOf) {
			if s.DiskIo != nil {
				g.add(float64(value(s.DiskIo)) / 1e6)
			}
		}}
}

// ofSpec returns a limit of those cgroups that have one.
func ofSpec(name, help string, has func(s specOf) bool, value func(s specOf) float64) family {
	return family{name: name, help: help, kind: gauge, timeless: true,
		values: func(g *builder, i *model.ContainerInfo, _ statsOf) {
			if has(&i.Spec) {
				g.add(value(&i.Spec))
			}
		}}
}

func always(specOf) bool { return true }

func hasCPU(s specOf) bool { return s.HasCpu }

func hasMemory(s specOf) bool { return s.HasMemory }

// limited returns a limit of memory, or 0 for none.
func limited(n uint64) float64 {
	if n >= cgroupstats.Unlimited {
		return 0
	}
	return float64(n)
}

func ioBytes(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceBytes }

func ioCount(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiced }

func ioSectors(d *model.DiskIoStats) []model.PerDiskStats { return d.Sectors }

func ioMerged(d *model.DiskIoStats) []model.PerDiskStats { return d.IoMerged }

func ioTime(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceTime }
