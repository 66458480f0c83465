package sim

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a running container uses: thousandths of a core, and bytes unless its Behaviour says otherwise.
const (
	milliCPU      = 10
	defaultMemory = 1 << 20
)

// ContainerStats reports the use of a running container by its Behaviour.
func (s *runtimeService) ContainerStats(_ context.Context,
	req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[req.GetContainerId()]
	switch {
	case c == nil:
		return nil, errNotFound("failed to find container")
	case !c.running():
		return nil, errUnknown("unexpected metrics response: []")
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.statsLocked(c)}, nil
}

// ListContainerStats reports the use of every running container that matches.
func (s *runtimeService) ListContainerStats(_ context.Context,
	req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r, f := s.r, req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.store.containersOf(f.GetPodSandboxId(), f.GetLabelSelector()) {
		if c.running() && (f.GetId() == "" || f.GetId() == c.id) && matches(c.config.GetLabels(), f.GetLabelSelector()) {
			resp.Stats = append(resp.Stats, r.statsLocked(c))
		}
	}
	return resp, nil
}

// PodSandboxStats reports the use of one sandbox, the sum of its containers.
func (s *runtimeService) PodSandboxStats(_ context.Context,
	req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.store.sandboxes[req.GetPodSandboxId()]
	if sb == nil {
		return nil, errNoSandbox()
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.sandboxStatsLocked(sb)}, nil
}

// ListPodSandboxStats reports the use of every ready sandbox that matches.
func (s *runtimeService) ListPodSandboxStats(_ context.Context,
	req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r, f := s.r, req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, sb := range r.store.sandboxesOf(f.GetLabelSelector()) {
		if sb.ready && (f.GetId() == "" || f.GetId() == sb.id) && matches(sb.config.GetLabels(), f.GetLabelSelector()) {
			resp.Stats = append(resp.Stats, r.sandboxStatsLocked(sb))
		}
	}
	return resp, nil
}

func (r *Runtime) statsLocked(c *container) *runtimeapi.ContainerStats {
	now := r.now()
	memory := orDefault(c.behaviour.Memory, defaultMemory)
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu:    cpuUsage(now, milliCPU, uint64(now.Sub(c.started))*milliCPU/1000),
		Memory: memoryUsage(now, memory),
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: imageRoot},
			UsedBytes: value(4096), InodesUsed: value(1),
		},
	}
}

func (r *Runtime) sandboxStatsLocked(sb *sandbox) *runtimeapi.PodSandboxStats {
	linux := &runtimeapi.LinuxPodSandboxStats{}
	var milli, nanos, memory uint64
	for _, c := range sb.inOrder() {
		if !c.running() {
			continue
		}
		stats := r.statsLocked(c)
		linux.Containers = append(linux.Containers, stats)
		milli += stats.GetCpu().GetUsageNanoCores().GetValue() / nanosPerMilli
		nanos += stats.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		memory += stats.GetMemory().GetWorkingSetBytes().GetValue()
	}
	linux.Cpu, linux.Memory = cpuUsage(r.now(), milli, nanos), memoryUsage(r.now(), memory)
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sb.id, Metadata: sb.config.GetMetadata(), Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
		},
		Linux: linux,
	}
}

// nanosPerMilli turns thousandths of a core into billionths.
const nanosPerMilli = 1_000_000

func cpuUsage(now time.Time, milli, nanos uint64) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{
		Timestamp: now.UnixNano(), UsageCoreNanoSeconds: value(nanos), UsageNanoCores: value(milli * nanosPerMilli),
	}
}

func memoryUsage(now time.Time, bytes uint64) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{
		Timestamp: now.UnixNano(), WorkingSetBytes: value(bytes), UsageBytes: value(bytes), RssBytes: value(bytes),
	}
}

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func orDefault(v, fallback uint64) uint64 {
	if v == 0 {
		return fallback
	}
	return v
}
