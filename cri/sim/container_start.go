package sim

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerd's status of a container that failed to start.
const (
	startErrorCode   = 128
	startErrorReason = "StartError"
)

// StartContainer starts a CREATED container, once. If it fails half-way, or the caller cancels it, the container is exited with
// 128 and StartError and cannot be started again; if the runtime dies half-way, it stays CREATED.
func (s *runtimeService) StartContainer(ctx context.Context,
	req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r := s.r
	c, err := r.beginStart(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	behaviour := r.opts.Script.behaviour(c.target)
	err = r.pause(ctx)
	if err == nil && r.opts.WriteLogs && c.logPath != "" {
		err = c.log.open(c.logPath)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	c.starting = false
	if !r.serving {
		c.log.close()
		return nil, errUnknown("the runtime went down while it started container %q", c.id)
	}
	if err == nil {
		err = r.mayRunLocked(c, behaviour)
	}
	if err != nil {
		r.failStartLocked(c, err)
		return nil, err
	}
	r.runLocked(c, behaviour)
	return &runtimeapi.StartContainerResponse{}, nil
}

// beginStart claims the container for one start.
func (r *Runtime) beginStart(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[id]
	switch {
	case c == nil:
		return nil, errNoContainer(id)
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
		r.violateLocked("started-twice", "StartContainer of %s in state %s", c.name, c.state)
		return nil, errUnknown("failed to set starting state for container %q: container is in %s state", id, c.state)
	case c.starting:
		r.violateLocked("started-twice", "StartContainer of %s while it was being started", c.name)
		return nil, errUnknown("failed to set starting state for container %q: container is already in starting state", id)
	}
	c.starting = true
	return c, nil
}

// mayRunLocked checks the remaining causes of failure after the preparation.
func (r *Runtime) mayRunLocked(c *container, b Behaviour) error {
	if !c.sandbox.ready {
		if c.sandbox.stopAsked {
			r.violateLocked("start-in-dead-sandbox", "StartContainer of %s in %s", c.name, c.sandbox.name)
		}
		return errUnknown("sandbox container %q is not running", c.sandbox.id)
	}
	if b.StartError != "" {
		return errUnknown("failed to create containerd task: %s", b.StartError)
	}
	return nil
}

// failStartLocked leaves the container as containerd does after a failed start: exited, without an event.
func (r *Runtime) failStartLocked(c *container, err error) {
	c.log.close()
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.finished, c.exitCode, c.reason, c.message = r.now(), startErrorCode, startErrorReason, err.Error()
	close(c.stopped)
	r.touchLocked(c)
}

// runLocked starts the container's process.
func (r *Runtime) runLocked(c *container, b Behaviour) {
	for other := range r.store.sandboxesByUID[c.target.PodUID] {
		for _, twin := range other.containers {
			if twin.running() && twin.target.Container == c.target.Container {
				r.violateLocked("two-running", "%s started while %s was running", c.name, twin.name)
			}
		}
	}
	c.behaviour = b
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, r.now()
	c.log.write(c.started, "stdout", b.Output...)
	r.touchLocked(c)
	r.emitLocked(c.target, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	switch end := func() { r.exitLocked(c, b.Code, b.Reason, b.Message) }; {
	case b.Exits && b.After <= 0:
		end()
	case b.Exits:
		c.ends = r.afterLocked(b.After, end)
	}
}

// exitLocked ends a running container's process, whatever the cause.
func (r *Runtime) exitLocked(c *container, code int32, reason, message string) {
	if !c.running() {
		return
	}
	r.cancelLocked(c.ends)
	r.cancelLocked(c.terms)
	c.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.finished, c.exitCode, c.reason, c.message = r.now(), code, reason, message
	c.log.close()
	close(c.stopped)
	r.touchLocked(c)
	r.emitLocked(c.target, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}
