package stats

import (
	"time"

	"github.com/google/cadvisor/lib/model"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// ofCRI returns the CRI's figures of a container in the form of a cgroup, so that readers need not distinguish the source. Its
// name is the ID, since it has no path.
func ofCRI(s *runtimeapi.ContainerStats, uid, id string) *cgroupstats.Cgroup {
	cpu, memory := s.GetCpu(), s.GetMemory()
	at := max(cpu.GetTimestamp(), memory.GetTimestamp())
	stats := &model.ContainerStats{Timestamp: time.Unix(0, at), Cpu: &model.CpuStats{}, Memory: &model.MemoryStats{}}
	out := &cgroupstats.Cgroup{Pod: uid, ID: id, Info: &model.ContainerInfo{
		ContainerReference: model.ContainerReference{Name: "/" + id}, Stats: []*model.ContainerStats{stats},
		Spec: model.ContainerSpec{HasCpu: cpu != nil, HasMemory: memory != nil},
	}}
	stats.Cpu.Usage.Total = cpu.GetUsageCoreNanoSeconds().GetValue()
	if cores := cpu.GetUsageNanoCores(); cores != nil {
		out.Cores = &cores.Value
	}
	m := stats.Memory
	m.Usage, m.WorkingSet = memory.GetUsageBytes().GetValue(), memory.GetWorkingSetBytes().GetValue()
	m.RSS = memory.GetRssBytes().GetValue()
	m.ContainerData.Pgfault = memory.GetPageFaults().GetValue()
	m.ContainerData.Pgmajfault = memory.GetMajorPageFaults().GetValue()
	m.Swap = s.GetSwap().GetSwapUsageBytes().GetValue()
	out.Info.Spec.Memory = model.MemorySpec{
		Limit: limit(m.WorkingSet, memory.GetAvailableBytes()), SwapLimit: limit(m.Swap, s.GetSwap().GetSwapAvailableBytes()),
	}
	return out
}

// limit returns the sum of the used and the available amount; without the latter there is no limit.
func limit(used uint64, left *runtimeapi.UInt64Value) uint64 {
	if left == nil {
		return cgroupstats.Unlimited
	}
	return used + left.GetValue()
}
