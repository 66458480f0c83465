package cadvisor

import (
	"time"

	"github.com/google/cadvisor/lib/model"
)

// The forms of v2.1 that differ from the library's model, which is v1.3.
type (
	containerInfo struct {
		Spec  containerSpec `json:"spec"`
		Stats []sample      `json:"stats"`
	}
	containerSpec struct {
		model.ContainerSpec
		Aliases   []string `json:"aliases,omitempty"`
		Namespace string   `json:"namespace,omitempty"`
	}
	sample struct {
		*model.ContainerStats                     // without the fields below
		CPUInst               *model.CpuInstStats `json:"cpu_inst,omitempty"`
		Network               *networkStats       `json:"network,omitempty"`
		Filesystem            []filesystem        `json:"filesystem,omitempty"` // only of the machine
	}
	networkStats struct {
		Interfaces []model.InterfaceStats `json:"interfaces,omitempty"`
	}
	filesystem struct {
		Device     string    `json:"device"`
		Type       string    `json:"type"`
		Capacity   uint64    `json:"capacity"`
		Usage      uint64    `json:"usage"`
		Available  uint64    `json:"available"`
		InodesFree *uint64   `json:"inodes_free,omitempty"`
		Disk       diskStats `json:"inline"` // the name in the API
	}
	diskStats struct {
		ReadsCompleted     uint64        `json:"reads_completed"`
		ReadsMerged        uint64        `json:"reads_merged"`
		SectorsRead        uint64        `json:"sectors_read"`
		ReadDuration       time.Duration `json:"read_duration"`
		WritesCompleted    uint64        `json:"writes_completed"`
		WritesMerged       uint64        `json:"writes_merged"`
		SectorsWritten     uint64        `json:"sectors_written"`
		WriteDuration      time.Duration `json:"write_duration"`
		IoInProgress       uint64        `json:"io_in_progress"`
		IoDuration         time.Duration `json:"io_duration"`
		WeightedIoDuration time.Duration `json:"weighted_io_duration"`
	}
)

func specOf(info *model.ContainerInfo) containerSpec {
	return containerSpec{info.Spec, info.Aliases, info.Namespace}
}

// samples returns the samples of a cgroup.
func samples(info *model.ContainerInfo) []sample {
	out := make([]sample, 0, len(info.Stats))
	var last *model.ContainerStats
	for _, s := range info.Stats {
		one := sample{ContainerStats: s}
		one.CPUInst, _ = model.InstCpuStats(last, s) // none after a reset
		if s.Network != nil {
			one.Network = &networkStats{s.Network.Interfaces}
		}
		for i := range s.Filesystem {
			one.Filesystem = append(one.Filesystem, filesystemOf(&s.Filesystem[i]))
		}
		out, last = append(out, one), s
	}
	return out
}

func filesystemOf(f *model.FsStats) filesystem {
	out := filesystem{Device: f.Device, Type: f.Type, Capacity: f.Limit, Usage: f.Usage, Available: f.Available, Disk: diskStats{
		ReadsCompleted: f.ReadsCompleted, ReadsMerged: f.ReadsMerged, SectorsRead: f.SectorsRead,
		ReadDuration:    milliseconds(f.ReadTime),
		WritesCompleted: f.WritesCompleted, WritesMerged: f.WritesMerged, SectorsWritten: f.SectorsWritten,
		WriteDuration: milliseconds(f.WriteTime), IoInProgress: f.IoInProgress, IoDuration: milliseconds(f.IoTime),
		WeightedIoDuration: milliseconds(f.WeightedIoTime),
	}}
	if f.HasInodes {
		out.InodesFree = &f.InodesFree
	}
	return out
}

func milliseconds(n uint64) time.Duration {
	return time.Duration(n) * time.Millisecond //nolint:gosec // the kernel's counter of 32 bits
}
