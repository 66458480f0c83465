package sim

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopPodSandbox kills all containers in the sandbox without a grace period, removes its network and leaves it not ready.
// Stopping an absent sandbox succeeds.
func (s *runtimeService) StopPodSandbox(ctx context.Context,
	req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	sb := r.store.sandboxes[req.GetPodSandboxId()]
	if sb != nil {
		sb.stopAsked = true
		for _, c := range sb.containers {
			if c.running() && !c.stopAsked {
				r.violateLocked("stopped-over-running", "StopPodSandbox of %s killed %s", sb.name, c.name)
			}
		}
	}
	r.mu.Unlock()
	if sb != nil {
		if err := r.stopSandbox(ctx, sb); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandbox(ctx context.Context, sb *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range sb.inOrder() {
		c.stopAsked = true
		if err := r.stopLocked(ctx, c, 0); err != nil {
			return errUnknown("failed to stop container %q: %v", c.id, err)
		}
	}
	r.endSandboxLocked(sb)
	r.teardownNetworkLocked(sb)
	r.touchSandboxLocked(sb)
	return nil
}

// endSandboxLocked ends the sandbox's own process, on request or by accident. Its network stays until the sandbox is stopped.
func (r *Runtime) endSandboxLocked(sb *sandbox) {
	if !sb.ready {
		return
	}
	sb.ready = false
	r.touchSandboxLocked(sb)
	r.emitLocked(r.store.targets[sb.id], sb, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemovePodSandbox stops the sandbox if needed, removes it with its containers and frees its name. Removing an absent sandbox
// succeeds.
func (s *runtimeService) RemovePodSandbox(ctx context.Context,
	req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r := s.r
	r.mu.Lock()
	sb := r.store.sandboxes[req.GetPodSandboxId()]
	if sb != nil {
		r.checkRemovedSandboxLocked(sb)
		sb.stopAsked = true
	}
	r.mu.Unlock()
	if sb == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err := r.stopSandbox(ctx, sb); err != nil {
		return nil, errUnknown("failed to forcibly stop sandbox %q: %v", sb.id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range sb.inOrder() {
		if err := r.removeLocked(c); err != nil {
			return nil, errUnknown("failed to remove container %q: %v", c.id, err)
		}
	}
	if r.store.sandboxes[sb.id] != sb { // another call was faster
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.emitLocked(r.store.targets[sb.id], sb, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	r.store.removeSandbox(sb)
	r.changedLocked()
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}
