package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// apiVersion is the CRI's version this client speaks.
const apiVersion = "v1"

// Version asks who the runtime is. A runtime that does not know CRI v1 at all
// yields an error that says so, and IsPermanent is true of it.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	k := call{name: "Version", class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.Version, &runtimeapi.VersionRequest{Version: apiVersion})
	if IsUnimplemented(err) {
		return nil, newCallError(k.name, k.object, true, status.Error(codes.Unimplemented, fmt.Sprintf(
			"it does not offer CRI %s (containerd does from 1.6 on, unless its CRI plugin is disabled)", apiVersion)))
	}
	if err != nil {
		return nil, err
	}
	if resp.RuntimeName == "" || resp.RuntimeApiVersion == "" {
		return nil, malformed(k, "no name or no API version")
	}
	return resp, nil
}

// Status asks for the runtime's conditions (RuntimeReady, NetworkReady), its
// handlers and features. The Status of a nil error is never nil.
func (c *Client) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	k := call{name: "Status", class: ClassRead}
	resp, err := invoke(ctx, c, k, c.runtime.Status, &runtimeapi.StatusRequest{Verbose: verbose})
	if err != nil {
		return nil, err
	}
	// The kubelet takes fewer conditions than the two the CRI requires for a
	// broken runtime.
	if resp.Status == nil || len(resp.Status.Conditions) < 2 {
		return nil, malformed(k, "a status without its two conditions")
	}
	return resp, nil
}

// RuntimeConfig asks for the cgroup driver. IsUnimplemented is true of the error
// where the runtime is too old (containerd before 2.0).
func (c *Client) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	k := call{name: "RuntimeConfig", class: ClassRead}
	return invoke(ctx, c, k, c.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{})
}

// UpdateRuntimeConfig tells the runtime the node's pod CIDRs, comma-separated.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, podCIDR string) error {
	k := call{name: "UpdateRuntimeConfig", object: podCIDR, class: ClassRead}
	_, err := invoke(ctx, c, k, c.runtime.UpdateRuntimeConfig, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: podCIDR}},
	})
	return err
}
