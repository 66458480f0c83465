package sim

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The usage of a running container: thousandths of a core, and bytes unless its Behaviour sets them.
const (
	milliCPU      = 10
	defaultMemory = 1 << 20
)

// ListContainerStats reports the usage of every running container that matches.
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

func (r *Runtime) statsLocked(c *container) *runtimeapi.ContainerStats {
	now := r.now()
	memory := value(orDefault(c.behaviour.Memory, defaultMemory))
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: now.UnixNano(), UsageNanoCores: value(milliCPU * uint64(time.Millisecond)),
			UsageCoreNanoSeconds: value(uint64(now.Sub(c.started)) * milliCPU / 1000),
		},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now.UnixNano(), WorkingSetBytes: memory, UsageBytes: memory, RssBytes: memory},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: imageRoot},
			UsedBytes: value(4096), InodesUsed: value(1),
		},
	}
}

func value(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func orDefault(v, fallback uint64) uint64 {
	if v == 0 {
		return fallback
	}
	return v
}
