package work

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

// ResizeContainer applies the resources of its spec to a running container. Lower means that more of some resource may be in
// effect: the memory limit is never set below the usage.
type ResizeContainer struct {
	Pod   *v1.Pod
	Spec  *v1.Container
	ID    string
	Lower bool
}

// ContainerResized is the result of ResizeContainer.
type ContainerResized struct {
	Name, ID  string
	Resources *v1.ResourceRequirements     // the applied resources
	Reported  *messages.ContainerResources // the runtime's report after that; nil if it does not report them
	Failed    *messages.Reason
	Sent      bool // the request was sent to the runtime
}

func (ResizeContainer) call() (name string, calls int) { return "UpdateContainerResources", 3 }

// run joins a resize in progress, and then returns its result.
func (e ResizeContainer) run(ctx context.Context, h *host.Host) any {
	key := cri.StartPrefix(string(e.Pod.UID)) + "resize/" + e.ID
	out, err := cri.Run(ctx, h.Ops, key, h.Reap(3), func(ctx context.Context) (ContainerResized, error) {
		return e.update(ctx, h), nil
	})
	if err = host.Joined(err); err != nil {
		return ContainerResized{Name: e.Spec.Name, ID: e.ID, Sent: true, Failed: e.failed(err)}
	}
	return out
}

func (e ResizeContainer) failed(err error) *messages.Reason {
	return &messages.Reason{Code: messages.EventResizeError, Message: fmt.Sprintf("container %s: %v", e.Spec.Name, err)}
}

func (e ResizeContainer) update(ctx context.Context, h *host.Host) ContainerResized {
	gets := translate.EffectiveResources(e.Pod.Spec.Resources, e.Spec.Resources)
	out := ContainerResized{Name: e.Spec.Name, ID: e.ID, Resources: &gets}
	r := translate.NewContainerResources(e.Pod, e.Spec, h.Node)
	// Fields that no resize changes stay as they are, as does the score of the OOM killer.
	r.OomScoreAdj, r.HugepageLimits, r.CpusetCpus = 0, nil, ""
	if _, throttled := r.GetUnified()["memory.high"]; h.Node.MemoryQoS && !throttled {
		r.Unified["memory.high"] = "max" // runtimes keep what an update leaves out
	}
	if limit := r.GetMemoryLimitInBytes(); e.Lower && limit > 0 {
		used, err := memoryUsed(ctx, h, e.ID)
		if err == nil && used > limit {
			err = fmt.Errorf("memory limit (%d) below current usage (%d), in bytes; it is tried again", limit, used)
		}
		if err != nil {
			out.Failed = e.failed(err)
			return out
		}
	}
	out.Sent = true
	if err := h.CRI.UpdateContainerResources(ctx, e.ID, r); err != nil {
		out.Failed = e.failed(err)
		return out
	}
	if resp, err := h.CRI.ContainerStatus(ctx, e.ID, false); err == nil {
		if f, err := facts.Container(resp.GetStatus()); err == nil {
			out.Reported = f.Resources
		}
	}
	return out
}

// memoryUsed returns the memory of a container, in bytes, that it cannot release at once; 0 if it does not run.
func memoryUsed(ctx context.Context, h *host.Host, id string) (int64, error) {
	all, err := h.CRI.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{Id: id})
	if err != nil {
		return 0, fmt.Errorf("its memory usage is unknown: %w", err)
	}
	used, found := uint64(0), false
	for _, s := range all {
		if w := s.GetMemory().GetWorkingSetBytes(); w != nil {
			used, found = max(used, w.GetValue()), true
		}
	}
	if !found {
		return 0, errors.New("its memory usage is unknown: the runtime does not report it")
	}
	return int64(used), nil // no machine has so much
}

// UpdateSandbox sends the resources of the pod as a whole to the runtime.
type UpdateSandbox struct {
	Pod *v1.Pod
	ID  string
}

// SandboxUpdated is the result of UpdateSandbox.
type SandboxUpdated struct {
	ID     string
	Pod    *v1.Pod // the pod in the request
	Failed *messages.Reason
}

func (UpdateSandbox) call() (name string, calls int) { return "UpdatePodSandboxResources", 1 }

// run joins a call in progress, and then returns its result.
func (e UpdateSandbox) run(ctx context.Context, h *host.Host) any {
	key := cri.StartPrefix(string(e.Pod.UID)) + "inform/" + e.ID
	pod, err := cri.Run(ctx, h.Ops, key, h.Reap(1), func(ctx context.Context) (*v1.Pod, error) {
		resources, overhead := translate.UpdatedSandboxResources(e.Pod, h.Node)
		return e.Pod, h.CRI.UpdatePodSandboxResources(ctx, e.ID, resources, overhead)
	})
	if err = host.Joined(err); err != nil {
		return SandboxUpdated{ID: e.ID, Failed: &messages.Reason{Code: messages.EventResizeError, Message: err.Error()}}
	}
	return SandboxUpdated{ID: e.ID, Pod: pod}
}
