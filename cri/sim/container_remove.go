package sim

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer kills the container if it runs and removes it; its name is free again then. A container that is not
// there is removed already; one that is being started cannot be removed.
func (s *runtimeService) RemoveContainer(ctx context.Context,
	req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[req.GetContainerId()]
	if c == nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if c.running() && !c.stopAsked {
		r.violateLocked("removed-running", "RemoveContainer of %s", c.name)
	}
	if err := r.stopLocked(ctx, c, 0); err != nil {
		return nil, errUnknown("failed to forcibly stop container %q: %v", c.id, err)
	}
	if err := r.removeLocked(c); err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// removeLocked removes a container that does not run. One that another call has removed meanwhile is fine.
func (r *Runtime) removeLocked(c *container) error {
	switch {
	case r.store.containers[c.id] != c:
		return nil
	case c.starting:
		return errUnknown("failed to set removing state for container %q: container is in starting state, can't be removed", c.id)
	case c.running():
		return errUnknown("failed to set removing state for container %q: container is still running, to stop first", c.id)
	}
	r.store.removeContainer(c)
	r.changedLocked()
	r.emitLocked(c.target, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}
