package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// killedCode is the exit code of a process ended by SIGKILL.
const killedCode = 137

// StopContainer sends the stop signal, waits up to the grace period (seconds; 0 sends SIGKILL at once), then kills. The signal is
// sent once: a repeated call waits the whole grace period again without sending it. After a cancelled call the signal remains
// sent, without a kill to follow. Stopping an absent or exited container succeeds.
func (s *runtimeService) StopContainer(ctx context.Context,
	req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.store.containers[req.GetContainerId()]; c != nil {
		c.stopAsked = true
		if err := r.stopLocked(ctx, c, time.Duration(req.GetTimeout())*time.Second); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// stopLocked stops c if it runs. It releases r.mu while it waits.
func (r *Runtime) stopLocked(ctx context.Context, c *container, grace time.Duration) error {
	if !c.running() {
		return nil
	}
	if grace > 0 {
		if !c.signalled {
			r.signalLocked(c)
		}
		if !c.running() {
			return nil
		}
		over := make(chan struct{})
		t := r.afterLocked(grace, func() { close(over) })
		err := r.waitStoppedLocked(ctx, c, over)
		r.cancelLocked(t)
		if err != nil || !c.running() {
			return err
		}
	}
	r.exitLocked(c, killedCode, "", "")
	return nil
}

// signalLocked delivers the stop signal to the process.
func (r *Runtime) signalLocked(c *container) {
	c.signalled = true
	c.signals++
	r.touchLocked(c)
	term := c.behaviour.Term
	if term.Ignore {
		return
	}
	end := func() { r.exitLocked(c, term.Code, "", "") }
	switch {
	case term.Delay <= 0:
		end()
	case c.terms == nil:
		c.terms = r.afterLocked(term.Delay, end)
	}
}

// waitStoppedLocked waits without r.mu until c is stopped, over is closed, or ctx ends. Only the last is an error.
func (r *Runtime) waitStoppedLocked(ctx context.Context, c *container, over <-chan struct{}) error {
	if !c.running() {
		return nil
	}
	r.mu.Unlock()
	var err error
	select {
	case <-c.stopped:
	case <-over:
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	}
	r.mu.Lock()
	return err
}

// RemoveContainer kills the container if it runs, removes it and frees its name. Removing an absent container succeeds; a
// container that is being started cannot be removed.
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

// removeLocked removes a container that does not run. A container that another call has removed in the meantime is not an error.
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
