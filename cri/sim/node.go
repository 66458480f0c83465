package sim

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerd's status of a container whose exit it missed.
const (
	unknownCode   = 255
	unknownReason = "Unknown"
)

// Reboot simulates a reboot of the node. The runtime goes down and comes up again; then no sandbox is ready or has an address,
// and running containers are exited with 255 and "Unknown". Containers that were only created stay created. No events are sent.
// It fails if the runtime cannot listen again.
func (r *Runtime) Reboot() error {
	r.serve.Lock()
	defer r.serve.Unlock()
	r.downServing()
	r.mu.Lock()
	for _, c := range r.store.containerOrder {
		r.exitLocked(c, unknownCode, unknownReason, "")
	}
	for _, sb := range r.store.sandboxOrder {
		r.endSandboxLocked(sb)
		r.teardownNetworkLocked(sb)
		sb.view = nil
	}
	r.changedLocked()
	r.mu.Unlock()
	return r.upServing()
}

// Exit ends the running container of that name in a pod with a code and a reason, such as 137 and "OOMKilled"; the default reason
// follows from the code. It fails if no such container runs.
func (r *Runtime) Exit(podUID, container string, code int32, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.runningLocked(podUID, container)
	if c == nil {
		return fmt.Errorf("sim: no running container %q in pod %q", container, podUID)
	}
	r.exitLocked(c, code, reason, "")
	return nil
}

// Print makes the running container of that name in a pod write lines to its log; stream is "stdout" or "stderr". It fails if no
// such container runs.
func (r *Runtime) Print(podUID, container, stream string, lines ...string) error {
	r.mu.Lock()
	c := r.runningLocked(podUID, container)
	r.mu.Unlock()
	if c == nil {
		return fmt.Errorf("sim: no running container %q in pod %q", container, podUID)
	}
	c.log.write(r.now(), stream, lines...)
	return nil
}

func (r *Runtime) runningLocked(podUID, name string) *container {
	for sb := range r.store.sandboxesByUID[podUID] {
		for _, c := range sb.containers {
			if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING && c.target.Container == name {
				return c
			}
		}
	}
	return nil
}
