package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox with the given runtime handler ("" is
// the runtime's default) and returns its ID. Where the name is taken,
// IsNameConflict is true of the error.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	k := call{name: "RunPodSandbox", object: sandboxName(config), class: ClassStart}
	resp, err := invoke(ctx, c, k, c.runtime.RunPodSandbox,
		&runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	return resp.PodSandboxId, nil
}

// StopPodSandbox kills what still runs in the sandbox and takes its network
// down. It is idempotent.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	k := call{name: "StopPodSandbox", object: shortID(id), class: ClassStop}
	_, err := invoke(ctx, c, k, c.runtime.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox forgets the sandbox and its containers, killing them if they
// run. It is idempotent.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	k := call{name: "RemovePodSandbox", object: shortID(id), class: ClassStop}
	_, err := invoke(ctx, c, k, c.runtime.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// UpdatePodSandboxResources tells the runtime of what the pod has as a whole, before its containers are given other resources
// (KEP-1287). A runtime that does not know the call needs no word, and that is no error: containerd 2.2 says so with a code of
// its own.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, id string, pod *v1.Pod, node NodeFacts) error {
	k := call{name: "UpdatePodSandboxResources", object: shortID(id), class: ClassStart}
	request := &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id}
	request.Resources, request.Overhead = updatedSandboxResources(pod, node)
	_, err := invoke(ctx, c, k, c.runtime.UpdatePodSandboxResources, request)
	if IsUnimplemented(err) || answeredWith(err, codes.Unknown) && strings.Contains(err.Error(), "not implemented") {
		return nil
	}
	return err
}

// PodSandboxStatus returns one sandbox, with the runtime's own facts in Info if
// verbose. The Status of a nil error is never nil.
func (c *Client) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	k := call{name: "PodSandboxStatus", object: shortID(id), class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.PodSandboxStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
	if err != nil {
		return nil, err
	}
	if resp.Status == nil || resp.Status.Id == "" || resp.Status.Metadata == nil {
		return nil, malformed(k, "a status without ID or metadata")
	}
	return resp, nil
}

// ListPodSandbox returns the sandboxes that match and are not another agent's; a nil filter means all.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	k := call{name: "ListPodSandbox", class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.ListPodSandbox,
		&runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	if filter == nil {
		c.noteForeign(resp.Items)
	}
	return ours(c, resp.Items), nil
}

func sandboxName(config *runtimeapi.PodSandboxConfig) string {
	m := config.GetMetadata()
	return m.GetNamespace() + "/" + m.GetName()
}
