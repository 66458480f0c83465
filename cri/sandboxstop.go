package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxStopper is the part of Client that StopSandbox calls.
type SandboxStopper interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	StopPodSandbox(ctx context.Context, id string) error
}

// RunningError is the refusal to stop a sandbox over running containers.
type RunningError struct {
	Sandbox    string
	Containers []string // IDs
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("sandbox %s still has running containers: %s", e.Sandbox, strings.Join(e.Containers, ", "))
}

// ErrSandboxStops is returned for a container that would start in a sandbox that is being stopped.
var ErrSandboxStops = errors.New("its sandbox is being stopped")

const startInfix = "/start/"

// StartPrefix begins the keys of the operations that create or start something of a pod.
func StartPrefix(uid string) string { return uid + startInfix }

// StartsPod returns the UID of the pod that an operation creates or starts a part of; ok is false for other operations.
func StartsPod(key string) (uid string, ok bool) {
	uid, _, ok = strings.Cut(key, startInfix)
	return uid, ok
}

func stopSandboxKey(uid, id string) string { return uid + "/stopsandbox/" + id }

// StopSandbox stops a sandbox of the pod with this UID and joins a stop in progress. StopPodSandbox kills running containers
// without a grace period. StopSandbox therefore waits for the pod's starts in progress. It returns a *RunningError if the sandbox
// has a running container that is not in asked, the containers with a requested stop. A sandbox that does not exist is stopped.
// Timeout must be positive.
func (o *Operations) StopSandbox(ctx context.Context, c SandboxStopper, uid, id string, timeout time.Duration,
	asked map[string]bool) error {
	_, err := o.Do(ctx, stopSandboxKey(uid, id), timeout, func(ctx context.Context) (any, error) {
		if err := o.Settle(ctx, StartPrefix(uid)); err != nil {
			return nil, err
		}
		list, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: id,
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
		if err != nil {
			return nil, err
		}
		refusal := &RunningError{Sandbox: id}
		for _, c := range list {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetPodSandboxId() == id && !asked[c.GetId()] {
				refusal.Containers = append(refusal.Containers, c.GetId())
			}
		}
		if len(refusal.Containers) > 0 {
			return nil, refusal
		}
		if err := c.StopPodSandbox(ctx, id); err != nil && !IsNotFound(err) {
			return nil, err
		}
		o.noteStopped(uid, id)
		return nil, nil
	})
	return err
}

func (o *Operations) noteStopped(uid, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped[uid] == nil {
		o.stopped[uid] = map[string]bool{}
	}
	o.stopped[uid][id] = true
}

// SandboxStopped reports whether StopSandbox has stopped a sandbox of the pod. A stopped sandbox never starts again.
func (o *Operations) SandboxStopped(uid, id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped[uid][id]
}

// ForgetSandbox drops the record of a stopped sandbox of the pod, which has been removed.
func (o *Operations) ForgetSandbox(uid, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.stopped[uid], id); len(o.stopped[uid]) == 0 {
		delete(o.stopped, uid)
	}
}

// ForgetSandboxes drops the records of all stopped sandboxes of a pod that has no sandbox any more.
func (o *Operations) ForgetSandboxes(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.stopped, uid)
}

// MayStart returns ErrSandboxStops if StopSandbox is stopping the sandbox. An operation whose key has StartPrefix calls it before
// it starts a container: either StopSandbox waits for that operation, or the operation sees StopSandbox here.
func (o *Operations) MayStart(uid, sandbox string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inFlight[stopSandboxKey(uid, sandbox)] != nil {
		return ErrSandboxStops
	}
	return nil
}
