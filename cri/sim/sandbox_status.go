package sim

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus returns the sandbox alone, as containerd does.
func (s *runtimeService) PodSandboxStatus(_ context.Context,
	req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.store.sandboxes[req.GetPodSandboxId()]
	if sb == nil {
		return nil, errNoSandbox()
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: r.sandboxStatusLocked(sb)}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": "{}"}
	}
	return resp, nil
}

func (r *Runtime) sandboxStatusLocked(sb *sandbox) *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id:             sb.id,
		Metadata:       sb.config.GetMetadata(),
		State:          sb.state(),
		CreatedAt:      sb.created.UnixNano(),
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: sb.ip},
		Labels:         sb.config.GetLabels(),
		Annotations:    sb.config.GetAnnotations(),
		RuntimeHandler: sb.handler,
	}
	if options := sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions(); options != nil {
		st.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}}
	}
	return st
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// ListPodSandbox lists the sandboxes that match every part of the filter, in an order without meaning.
func (s *runtimeService) ListPodSandbox(_ context.Context,
	req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r, f := s.r, req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, sb := range r.store.sandboxesOf(f.GetLabelSelector()) {
		if f.GetId() != "" && f.GetId() != sb.id ||
			f.GetState() != nil && f.GetState().GetState() != sb.state() ||
			!matches(sb.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id:             sb.id,
			Metadata:       sb.config.GetMetadata(),
			State:          sb.state(),
			CreatedAt:      sb.created.UnixNano(),
			Labels:         sb.config.GetLabels(),
			Annotations:    sb.config.GetAnnotations(),
			RuntimeHandler: sb.handler,
		})
	}
	return resp, nil
}

// UpdatePodSandboxResources accepts the call without a visible effect.
func (s *runtimeService) UpdatePodSandboxResources(_ context.Context,
	req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r := s.r
	if r.opts.Old {
		return nil, status.Error(codes.Unimplemented, "method UpdatePodSandboxResources not implemented")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store.sandboxes[req.GetPodSandboxId()] == nil {
		return nil, errNotFound("failed to find sandbox")
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
