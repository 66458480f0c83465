package stats

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/linux/meminfo"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// Summary returns the answer of /stats/summary, in the form of k8s.io/kubelet. A started pod keeps its volumes in it while all
// its containers are in back-off (kubernetes/kubernetes#141350). lacks describes missing figures in sentences. ctx bounds the
// wait for figures.
func (c *Collector) Summary(ctx context.Context, onlyCPUAndMemory bool) (s *api.Summary, lacks []string) {
	age := fullAge
	if onlyCPUAndMemory {
		age = resourceAge
	}
	f := c.collect(ctx, age, !onlyCPUAndMemory, urgency{})
	s = &api.Summary{Node: c.nodeStats(f, !onlyCPUAndMemory), Pods: []api.PodStats{}}
	for i := range f.pods {
		s.Pods = append(s.Pods, f.podStats(&f.pods[i], !onlyCPUAndMemory))
	}
	for i := range f.idle {
		if p := &f.idle[i]; !onlyCPUAndMemory && p.Status.Phase == v1.PodRunning {
			s.Pods = append(s.Pods, f.podStats(p, true))
		}
	}
	return s, f.lacks
}

// PodStats returns the figures of pods, for eviction. Without a running container a pod is included once its files are measured:
// it may fill the disk in each short run. The pods in urgent are measured again unless that was done in the
// last seconds; short: in the last second, or in the time that it takes; nil: no walk is requested. The figures of pods in
// partial are lower bounds. The figures of pods in old are from an earlier walk: the requested walk has no sum yet.
func (c *Collector) PodStats(ctx context.Context, urgent map[types.UID]bool, short bool) (
	pods []api.PodStats, partial, old map[types.UID]bool, lacks []string,
) {
	request := urgency{urgent, short, urgent == nil}
	now := c.opts.Now()
	f := c.collect(ctx, urgentAge, true, request)
	partial, old = map[types.UID]bool{}, map[types.UID]bool{}
	for _, p := range slices.Concat(f.pods, f.idle) {
		uid := p.Pod.Pod.UID
		if len(p.containers) == 0 && p.usage == nil {
			continue
		}
		if u := p.usage; u != nil {
			partial[uid] = u.partial
			old[uid] = short && urgent[uid] && u.bound == nil && u.due(now, c.ageOf(p.Pod.Pod, request))
		}
		p.usage = p.usage.least()
		pods = append(pods, f.podStats(&p, true))
	}
	return pods, partial, old, f.lacks
}

func (c *Collector) nodeStats(f *figures, all bool) api.NodeStats {
	machine, _ := meminfo.Read("/proc") // a failure is reported where capacity is read: registration and eviction
	out := api.NodeStats{
		NodeName: c.opts.NodeName, StartTime: metav1.NewTime(c.booted), CPU: cpu(f.node),
		Memory: memoryOfNode(f.node, machine.HugePages),
		Swap:   swap(f.node),
	}
	names := map[string]string{api.SystemContainerPods: c.opts.Kubepods()}
	for name, path := range f.system {
		names[name] = path
	}
	for _, name := range []string{
		api.SystemContainerKubelet, api.SystemContainerRuntime, api.SystemContainerMisc, api.SystemContainerPods,
	} {
		if g := f.cgroups[names[name]]; g != nil && names[name] != "/" {
			out.SystemContainers = append(out.SystemContainers, api.ContainerStats{
				Name: name, StartTime: metav1.NewTime(g.Info.Spec.CreationTime), CPU: cpu(g), Memory: memory(g), Swap: swap(g),
			})
		}
	}
	if !all {
		return out
	}
	out.IO, out.Network = inputOutput(f.node), network(f.node)
	if !f.disk.at.IsZero() {
		out.Fs = fsStats(f.disk, f.disk.used, f.disk.inodesUsed)
	}
	if i := f.images; !i.images.at.IsZero() {
		out.Runtime = &api.RuntimeStats{ImageFs: fsStats(i.images, i.images.used, i.images.inodesUsed)}
		out.Runtime.ContainerFs = fsStats(i.containers, i.containers.used, i.containers.inodesUsed)
	}
	if running, most, err := processes(); err == nil {
		out.Rlimit = &api.RlimitStats{Time: metav1.NewTime(f.at), MaxPID: &most, NumOfRunningProcesses: &running}
	}
	return out
}

// podStats returns the figures of a pod. Its CPU and memory are its cgroup's, or the sum of its containers' if the cgroup is not
// visible.
func (f *figures) podStats(p *podFigures, all bool) api.PodStats {
	out := api.PodStats{
		PodRef:    api.PodReference{Name: p.Pod.Pod.Name, Namespace: p.Pod.Pod.Namespace, UID: string(p.Pod.Pod.UID)},
		StartTime: p.startTime(), CPU: cpu(p.own), Memory: memory(p.own), Swap: swap(p.own), Containers: []api.ContainerStats{},
	}
	for _, c := range p.containers {
		out.Containers = append(out.Containers, f.containerStats(p, c, all))
	}
	if p.own == nil {
		out.CPU, out.Memory, out.Swap = sum(out.Containers)
	}
	if !all {
		return out
	}
	out.IO, out.Network, out.ProcessStats = inputOutput(p.own), network(p.sandbox), p.processes()
	f.storage(p, &out)
	return out
}

func (p *podFigures) startTime() metav1.Time {
	if p.Status.StartTime != nil {
		return *p.Status.StartTime
	}
	return p.Pod.Pod.CreationTimestamp
}

func (f *figures) containerStats(p *podFigures, c containerFigures, all bool) api.ContainerStats {
	out := api.ContainerStats{
		Name: c.status.Name, StartTime: metav1.NewTime(c.started), CPU: cpu(c.cgroup), Memory: memory(c.cgroup),
		Swap: swap(c.cgroup),
	}
	if !all {
		return out
	}
	out.IO = inputOutput(c.cgroup)
	if w := c.writable; w != nil {
		fs := f.images.containers
		fs.at = time.Unix(0, w.GetTimestamp())
		out.Rootfs = fsStats(fs, w.GetUsedBytes().GetValue(), w.GetInodesUsed().GetValue())
	}
	if p.usage != nil {
		if logs, ok := p.usage.logs[c.status.Name]; ok {
			out.Logs = shared(f.disk, logs)
		}
	}
	return out
}

// storage adds the usage of the pod's volumes, and its total usage of the node's own disks [ephemeral-storage]: writable layers,
// logs, etc-hosts, termination logs, and volumes that are folders of the node. The logs of a container in back-off count, as they
// did while it ran.
func (f *figures) storage(p *podFigures, out *api.PodStats) {
	if f.disk.at.IsZero() {
		return
	}
	var bytes, inodes uint64
	add := func(s *api.FsStats) {
		if s != nil {
			bytes, inodes = bytes+*s.UsedBytes, inodes+*s.InodesUsed
		}
	}
	running := map[string]bool{}
	for i := range out.Containers {
		running[out.Containers[i].Name] = true
		add(out.Containers[i].Rootfs)
		add(out.Containers[i].Logs)
	}
	if u := p.usage; u != nil {
		for _, c := range podspec.LongRunning(p.Pod.Pod) {
			if logs, ok := u.logs[c.Name]; ok && !running[c.Name] {
				bytes, inodes = bytes+logs.used, inodes+logs.inodesUsed
			}
		}
		for _, v := range p.Pod.Pod.Spec.Volumes {
			s, ok := u.volume(v.Name)
			if !ok {
				continue
			}
			fs := fsStats(s, s.used, s.inodesUsed)
			one := api.VolumeStats{Name: v.Name, FsStats: *fs}
			if claim := podspec.ClaimOf(p.Pod.Pod, &v); claim != "" {
				one.PVCRef = &api.PVCReference{Name: claim, Namespace: p.Pod.Pod.Namespace}
			}
			out.VolumeStats = append(out.VolumeStats, one)
			if localEphemeral(&v) {
				add(fs)
			}
		}
		bytes, inodes = bytes+u.podLogs.used+u.kept.used, inodes+u.podLogs.inodesUsed+u.kept.inodesUsed
	}
	out.EphemeralStorage = fsStats(f.disk, bytes, inodes)
}

// localEphemeral reports whether a volume counts as the pod's ephemeral storage, by the kubelet's rule: memory does not.
func localEphemeral(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil
}

func (p *podFigures) processes() *api.ProcessStats {
	var n uint64
	found := false
	count := func(g *cgroupstats.Cgroup) {
		if s := g.Stats(); s != nil && s.Processes != nil {
			n, found = n+s.Processes.ProcessCount, true
		}
	}
	count(p.sandbox)
	for _, c := range p.containers {
		count(c.cgroup)
	}
	if !found {
		return nil
	}
	return &api.ProcessStats{ProcessCount: &n}
}

func cpu(g *cgroupstats.Cgroup) *api.CPUStats {
	s := g.Stats()
	if s == nil || s.Cpu == nil || !g.Info.Spec.HasCpu {
		return nil
	}
	return &api.CPUStats{
		Time: metav1.NewTime(s.Timestamp), UsageCoreNanoSeconds: &s.Cpu.Usage.Total, UsageNanoCores: g.Cores,
		PSI: psi(&s.Cpu.PSI),
	}
}

func memory(g *cgroupstats.Cgroup) *api.MemoryStats {
	s := g.Stats()
	if s == nil || s.Memory == nil || !g.Info.Spec.HasMemory {
		return nil
	}
	m := s.Memory
	out := &api.MemoryStats{
		Time: metav1.NewTime(s.Timestamp), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.ContainerData.Pgfault, MajorPageFaults: &m.ContainerData.Pgmajfault, PSI: psi(&m.PSI),
	}
	if limit := g.Info.Spec.Memory.Limit; bounded(limit) {
		out.AvailableBytes = left(limit, m.WorkingSet)
	}
	return out
}

// memoryOfNode returns the node's memory. The bytes in huge pages are available to their own users alone
// (kubernetes/kubernetes#137984).
func memoryOfNode(g *cgroupstats.Cgroup, huge int64) *api.MemoryStats {
	out := memory(g)
	if out != nil && out.AvailableBytes != nil {
		out.AvailableBytes = left(*out.AvailableBytes, uint64(huge)) //nolint:gosec // a size
	}
	return out
}

func swap(g *cgroupstats.Cgroup) *api.SwapStats {
	s := g.Stats()
	if s == nil || s.Memory == nil || !g.Info.Spec.HasMemory {
		return nil
	}
	out := &api.SwapStats{Time: metav1.NewTime(s.Timestamp), SwapUsageBytes: &s.Memory.Swap}
	if limit := g.Info.Spec.Memory.SwapLimit; bounded(limit) {
		out.SwapAvailableBytes = left(limit, s.Memory.Swap)
	}
	return out
}

// bounded reports whether a limit is effective. Cgroups of version 1 use the largest number, rounded to pages, for no limit.
func bounded(limit uint64) bool { return limit < cgroupstats.Unlimited }

func left(limit, used uint64) *uint64 {
	n := limit - min(used, limit)
	return &n
}

func inputOutput(g *cgroupstats.Cgroup) *api.IOStats {
	s := g.Stats()
	if s == nil || s.DiskIo == nil {
		return nil
	}
	return &api.IOStats{Time: metav1.NewTime(s.Timestamp), PSI: psi(&s.DiskIo.PSI)}
}

// psi returns pressure stall information in the kubelet's form; all zero if the machine does not support it, as with cgroups of
// version 1.
func psi(p *model.PSIStats) *api.PSIStats {
	return &api.PSIStats{Full: psiData(&p.Full), Some: psiData(&p.Some)}
}

func psiData(d *model.PSIData) api.PSIData {
	return api.PSIData{Total: d.Total, Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
}

// network returns the traffic of the interfaces. The default interface of the pod also has its own entry.
func network(g *cgroupstats.Cgroup) *api.NetworkStats {
	s := g.Stats()
	if s == nil || s.Network == nil || !g.Info.Spec.HasNetwork {
		return nil
	}
	out := &api.NetworkStats{Time: metav1.NewTime(s.Timestamp)}
	for i := range s.Network.Interfaces {
		n := &s.Network.Interfaces[i]
		one := api.InterfaceStats{
			Name: n.Name, RxBytes: &n.RxBytes, RxErrors: &n.RxErrors, TxBytes: &n.TxBytes, TxErrors: &n.TxErrors,
		}
		if n.Name == "eth0" {
			out.InterfaceStats = one
		}
		out.Interfaces = append(out.Interfaces, one)
	}
	return out
}

// fsStats returns the figures of a file system, with the usage by one of its users.
func fsStats(s space, bytes, inodes uint64) *api.FsStats {
	return &api.FsStats{
		Time: metav1.NewTime(s.at), AvailableBytes: &s.available, CapacityBytes: &s.capacity, UsedBytes: &bytes,
		InodesFree: &s.inodesFree, Inodes: &s.inodes, InodesUsed: &inodes,
	}
}

// shared returns the figures of a user of the disk.
func shared(disk, s space) *api.FsStats {
	out := fsStats(disk, s.used, s.inodesUsed)
	out.Time = metav1.NewTime(s.at)
	return out
}

// sum adds up the containers of a pod without a visible cgroup.
func sum(list []api.ContainerStats) (*api.CPUStats, *api.MemoryStats, *api.SwapStats) {
	var cpu *api.CPUStats
	var memory *api.MemoryStats
	var swap *api.SwapStats
	for _, c := range list {
		if c.CPU != nil {
			if cpu == nil {
				cpu = &api.CPUStats{}
			}
			cpu.Time = later(cpu.Time, c.CPU.Time)
			cpu.UsageCoreNanoSeconds = plus(cpu.UsageCoreNanoSeconds, c.CPU.UsageCoreNanoSeconds)
			cpu.UsageNanoCores = plus(cpu.UsageNanoCores, c.CPU.UsageNanoCores)
		}
		if c.Memory != nil {
			if memory == nil {
				memory = &api.MemoryStats{}
			}
			memory.Time = later(memory.Time, c.Memory.Time)
			memory.UsageBytes = plus(memory.UsageBytes, c.Memory.UsageBytes)
			memory.WorkingSetBytes = plus(memory.WorkingSetBytes, c.Memory.WorkingSetBytes)
			memory.RSSBytes = plus(memory.RSSBytes, c.Memory.RSSBytes)
			memory.PageFaults = plus(memory.PageFaults, c.Memory.PageFaults)
			memory.MajorPageFaults = plus(memory.MajorPageFaults, c.Memory.MajorPageFaults)
		}
		if c.Swap != nil {
			if swap == nil {
				swap = &api.SwapStats{}
			}
			swap.Time = later(swap.Time, c.Swap.Time)
			swap.SwapUsageBytes = plus(swap.SwapUsageBytes, c.Swap.SwapUsageBytes)
		}
	}
	return cpu, memory, swap
}

func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	n := *a + min(*b, math.MaxUint64-*a)
	return &n
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}
