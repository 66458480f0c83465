package sim

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// condition is one of the two conditions of Status.
type condition struct {
	ok              bool
	reason, message string
}

func (c condition) of(kind string) *runtimeapi.RuntimeCondition {
	return &runtimeapi.RuntimeCondition{Type: kind, Status: c.ok, Reason: c.reason, Message: c.message}
}

// SetRuntimeReady sets the RuntimeReady condition; message explains a false one. It only changes the answer of Status.
func (r *Runtime) SetRuntimeReady(ok bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = condition{ok: ok, message: message}
	if !ok {
		r.ready.reason = "RuntimeNotReady"
	}
}

// SetNetworkReady sets the NetworkReady condition; message explains a false one. While it is false, RunPodSandbox
// fails for pods outside the host's network, as it does before a CNI configuration is installed.
func (r *Runtime) SetNetworkReady(ok bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network = condition{ok: ok, message: message}
	if !ok {
		r.network.reason = "NetworkPluginNotReady"
	}
}

// Status reports the conditions, handlers and features.
func (s *runtimeService) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		r.ready.of(runtimeapi.RuntimeReady), r.network.of(runtimeapi.NetworkReady),
	}}}
	if !r.opts.Old {
		resp.RuntimeHandlers, resp.Features = r.opts.Handlers, r.opts.Features
	}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": "{}"}
	}
	return resp, nil
}

// Version reports Options.Name and Options.Version.
func (s *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: s.r.opts.Name, RuntimeVersion: s.r.opts.Version, RuntimeApiVersion: "v1",
	}, nil
}

// RuntimeConfig reports the cgroup driver.
func (s *runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse,
	error) {
	if s.r.opts.Old {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig for service runtime.v1.RuntimeService")
	}
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: s.r.opts.CgroupDriver},
	}, nil
}

// UpdateRuntimeConfig accepts the call; the simulated network already has its addresses.
func (s *runtimeService) UpdateRuntimeConfig(context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
