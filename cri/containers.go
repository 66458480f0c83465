package cri

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in the sandbox and returns its ID. Where
// the name is taken, IsNameConflict is true of the error.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	object := sandboxName(sandbox) + "/" + config.GetMetadata().GetName()
	k := call{name: "CreateContainer", object: object, class: ClassStart}
	resp, err := invoke(ctx, c, k, c.runtime.CreateContainer, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
	})
	if err != nil {
		return "", err
	}
	if resp.ContainerId == "" {
		return "", malformed(k, "a container without an ID")
	}
	return resp.ContainerId, nil
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	k := call{name: "StartContainer", object: shortID(id), class: ClassStart}
	_, err := invoke(ctx, c, k, c.runtime.StartContainer,
		&runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal and, when the grace period is over,
// SIGKILL. The grace is cut to whole seconds, upwards, and 0 kills at once. It
// is idempotent, but a repeated call waits the whole grace period again. With a
// grace period it holds no slot of the budget (see ClassStop); it may take the
// grace period and RequestTimeout.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int64(math.Ceil(max(grace, 0).Seconds()))
	k := call{
		name: "StopContainer", object: shortID(id), class: ClassStop,
		extra: time.Duration(seconds) * time.Second, slotless: seconds > 0,
	}
	_, err := invoke(ctx, c, k, c.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

// RemoveContainer forgets the container, killing it if it runs. It is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	k := call{name: "RemoveContainer", object: shortID(id), class: ClassStop}
	_, err := invoke(ctx, c, k, c.runtime.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers returns the containers that match and are not another agent's; a nil filter means all.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	all, err := c.listContainers(ctx, filter)
	return ours(c, all), err
}

// ListAllContainers returns all containers of the runtime, those of other agents, too.
func (c *Client) ListAllContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	return c.listContainers(ctx, nil)
}

func (c *Client) listContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	k := call{name: "ListContainers", class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.ListContainers,
		&runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return resp.Containers, nil
}

// ListContainerStats returns what running containers use, as far as the runtime tells; nil is no filter.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) (
	[]*runtimeapi.ContainerStats, error) {
	resp, err := invoke(ctx, c, call{name: "ListContainerStats", class: ClassRead}, c.runtime.ListContainerStats,
		&runtimeapi.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return resp.GetStats(), nil
}

// ContainerStatus returns one container, with the runtime's own facts in Info if
// verbose. The Status of a nil error is never nil.
func (c *Client) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	k := call{name: "ContainerStatus", object: shortID(id), class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.ContainerStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
	if err != nil {
		return nil, err
	}
	if resp.Status == nil || resp.Status.Id == "" || resp.Status.Metadata == nil {
		return nil, malformed(k, "a status without ID or metadata")
	}
	return resp, nil
}

// UpdateContainerResources changes the limits of a created or running container.
func (c *Client) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	k := call{name: "UpdateContainerResources", object: shortID(id), class: ClassStart}
	_, err := invoke(ctx, c, k, c.runtime.UpdateContainerResources,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// ReopenContainerLog makes the runtime open the log path anew after a rotation.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	k := call{name: "ReopenContainerLog", object: shortID(id), class: ClassRead}
	_, err := invoke(ctx, c, k, c.runtime.ReopenContainerLog,
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer writes a running container's state to a file (KEP-2008). The timeout is in whole seconds, 0 for
// RequestTimeout. IsUnimplemented is true of the error where the runtime cannot.
func (c *Client) CheckpointContainer(ctx context.Context, id, location string, timeout int64) error {
	k := call{
		name: "CheckpointContainer", object: shortID(id), class: ClassStart, extra: time.Duration(timeout) * time.Second,
	}
	_, err := invoke(ctx, c, k, c.runtime.CheckpointContainer,
		&runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: location, Timeout: timeout})
	return err
}

// malformed is a reply the CRI does not allow. It says nothing of the object,
// so it is an ordinary failure of the call.
func malformed(k call, what string) error {
	return newCallError(k.name, k.object, true, status.Error(codes.Internal, "the runtime replied with "+what))
}
