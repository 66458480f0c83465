package pod

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// resizeContainer gives a container other resources. It joins one that is under way, and tells then what that has given.
func resizeContainer(ctx context.Context, h *host.Host, e ResizeContainer) ContainerResized {
	key := fmt.Sprintf("%s/start/resize/%s", e.Pod.UID, e.ID)
	out, err := cri.Run(ctx, h.Ops, key, h.Reap(3), func(ctx context.Context) (ContainerResized, error) {
		return update(ctx, h, e), nil
	})
	if err = host.Joined(err); err != nil {
		return ContainerResized{Name: e.Spec.Name, ID: e.ID, Sent: true, Failed: resizeFailed(e, err)}
	}
	return out
}

func resizeFailed(e ResizeContainer, err error) *messages.Reason {
	return &messages.Reason{Code: messages.EventResizeError, Message: fmt.Sprintf("container %s: %v", e.Spec.Name, err)}
}

func update(ctx context.Context, h *host.Host, e ResizeContainer) ContainerResized {
	gets := translate.EffectiveResources(e.Pod.Spec.Resources, e.Spec.Resources)
	out := ContainerResized{Name: e.Spec.Name, ID: e.ID, Resources: &gets}
	r := translate.NewContainerResources(e.Pod, e.Spec, h.Node)
	// What no resize changes is left as it is, as is its place among those that are killed first.
	r.OomScoreAdj, r.HugepageLimits = 0, nil
	if _, throttled := r.GetUnified()["memory.high"]; h.Node.MemoryQoS && !throttled {
		r.Unified["memory.high"] = "max" // runtimes keep what an update leaves out
	}
	if limit := r.GetMemoryLimitInBytes(); e.Lower && limit > 0 {
		used, err := memoryUsed(ctx, h, e.ID)
		if err == nil && used > limit {
			err = fmt.Errorf("memory limit (%d) below current usage (%d), in bytes; it is tried again", limit, used)
		}
		if err != nil {
			out.Failed = resizeFailed(e, err)
			return out
		}
	}
	out.Sent = true
	if err := h.CRI.UpdateContainerResources(ctx, e.ID, r); err != nil {
		out.Failed = resizeFailed(e, err)
		return out
	}
	if resp, err := h.CRI.ContainerStatus(ctx, e.ID, false); err == nil {
		if f, err := facts.Container(resp.GetStatus()); err == nil {
			out.Told = f.Resources
		}
	}
	return out
}

// memoryUsed is what a container uses of memory and could not give back at once, in bytes; 0 for one that does not run.
func memoryUsed(ctx context.Context, h *host.Host, id string) (int64, error) {
	all, err := h.CRI.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{Id: id})
	if err != nil {
		return 0, fmt.Errorf("what it uses of memory is not known: %w", err)
	}
	used, found := uint64(0), false
	for _, s := range all {
		if w := s.GetMemory().GetWorkingSetBytes(); w != nil {
			used, found = max(used, w.GetValue()), true
		}
	}
	if !found {
		return 0, errors.New("what it uses of memory is not known: the runtime does not tell")
	}
	return int64(used), nil // no machine has so much
}

// updateSandbox tells the runtime. It joins a call that is under way, and says then what that has told.
func updateSandbox(ctx context.Context, h *host.Host, e UpdateSandbox) SandboxUpdated {
	key := string(e.Pod.UID) + "/start/inform/" + e.ID
	pod, err := cri.Run(ctx, h.Ops, key, h.Reap(1), func(ctx context.Context) (*v1.Pod, error) {
		resources, overhead := translate.UpdatedSandboxResources(e.Pod, h.Node)
		return e.Pod, h.CRI.UpdatePodSandboxResources(ctx, e.ID, resources, overhead)
	})
	if err = host.Joined(err); err != nil {
		return SandboxUpdated{ID: e.ID, Failed: &messages.Reason{Code: messages.EventResizeError, Message: err.Error()}}
	}
	return SandboxUpdated{ID: e.ID, Pod: pod}
}
