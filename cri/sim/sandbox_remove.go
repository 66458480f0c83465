package sim

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox stops the sandbox if need be and removes it with its containers; its name is free again then. A
// sandbox that is not there is removed already.
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
