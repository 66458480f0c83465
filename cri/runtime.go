package cri

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// apiVersion is the CRI version of this client.
const apiVersion = "v1"

// Version returns the name and version of the runtime. A runtime without CRI v1 yields an error that satisfies IsPermanent.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	resp, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
	if IsUnimplemented(err) {
		err = newCallError("Version", "", true, status.Error(codes.Unimplemented, fmt.Sprintf(
			"it does not offer CRI %s (containerd does from 1.6 on, unless its CRI plugin is disabled)", apiVersion)))
	}
	return resp, err
}

// Status returns the runtime's conditions (RuntimeReady, NetworkReady), its handlers and features. The Status of a nil error is
// never nil.
func (c *Client) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RuntimeConfig returns the cgroup driver. The error of a runtime that is too old (containerd before 2.0) satisfies
// IsUnimplemented.
func (c *Client) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return c.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
}

// UpdateRuntimeConfig sends the node's pod CIDRs, comma-separated, to the runtime.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, podCIDR string) error {
	_, err := c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: podCIDR}},
	})
	return err
}

// RunPodSandbox creates and starts a sandbox with the given runtime handler ("" is the runtime's default) and returns its ID. If
// the name is taken, the error satisfies IsNameConflict.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	resp, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return resp.GetPodSandboxId(), err
}

// StopPodSandbox kills all processes in the sandbox and removes its network. It is idempotent.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox removes the sandbox and its containers, killing them if they run. It is idempotent.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// UpdatePodSandboxResources sends the resources of the pod as a whole to the runtime, before those of its containers change
// (KEP-1287). It returns nil if the runtime does not implement the call, which is optional; containerd 2.2 uses its own code for
// that.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, id string,
	r, overhead *runtimeapi.LinuxContainerResources) error {
	_, err := c.runtime.UpdatePodSandboxResources(ctx,
		&runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Resources: r, Overhead: overhead})
	if IsUnimplemented(err) || answeredWith(err, codes.Unknown) && strings.Contains(err.Error(), "not implemented") {
		return nil
	}
	return err
}

// PodSandboxStatus returns one sandbox, with the runtime's own details in Info if verbose. The Status of a nil error is never
// nil.
func (c *Client) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
}

// ListPodSandbox returns the matching sandboxes without those of other agents; a nil filter matches all.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	resp, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err == nil && filter == nil {
		c.noteForeign(resp.Items)
	}
	return ours(c, resp.GetItems()), err
}

// CreateContainer creates a container in the sandbox and returns its ID. If the name is taken, the error satisfies
// IsNameConflict.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	resp, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
	})
	return resp.GetContainerId(), err
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends the stop signal and, after the grace period, SIGKILL. The grace period is rounded up to whole seconds; 0
// kills at once. It is idempotent, but a repeated call waits the whole grace period again. With a grace period it soon frees
// its slot of the budget (see ClassStop); it may take the grace period and RequestTimeout.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: wholeSeconds(grace)})
	return err
}

func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(max(d, 0).Seconds())) }

// RemoveContainer removes the container, killing it if it runs. It is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers returns the matching containers without those of other agents; a nil filter matches all.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	return ours(c, resp.GetContainers()), err
}

// ListAllContainers returns all containers of the runtime, including those of other agents.
func (c *Client) ListAllContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return resp.GetContainers(), err
}

// ListContainerStats returns the usage of running containers, as far as the runtime reports it; a nil filter matches all.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) (
	[]*runtimeapi.ContainerStats, error) {
	resp, err := c.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return resp.GetStats(), err
}

// ContainerStatus returns one container, with the runtime's own details in Info if verbose. The Status of a nil error is never
// nil.
func (c *Client) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// UpdateContainerResources changes the limits of a created or running container.
func (c *Client) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// ReopenContainerLog makes the runtime reopen the log path after a rotation.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer writes a running container's state to a file (KEP-2008). The timeout is in whole seconds, 0 for
// RequestTimeout. If the runtime does not implement it, the error satisfies IsUnimplemented.
func (c *Client) CheckpointContainer(ctx context.Context, id, location string, timeout int64) error {
	_, err := c.runtime.CheckpointContainer(ctx,
		&runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: location, Timeout: timeout})
	return err
}
