package sim

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStatus returns the full status of one container.
func (s *runtimeService) ContainerStatus(_ context.Context,
	req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[req.GetContainerId()]
	if c == nil {
		return nil, errNoContainer(req.GetContainerId())
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: r.statusLocked(c)}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": `{"sandboxID":"` + c.sandbox.id + `"}`}
	}
	return resp, nil
}

// statusesLocked returns the status of every container of the sandbox.
func (r *Runtime) statusesLocked(sb *sandbox) []*runtimeapi.ContainerStatus {
	all := make([]*runtimeapi.ContainerStatus, 0, len(sb.containers))
	for _, c := range sb.inOrder() {
		all = append(all, r.statusLocked(c))
	}
	return all
}

func (r *Runtime) statusLocked(c *container) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		State:       c.state,
		CreatedAt:   c.created.UnixNano(),
		ExitCode:    c.exitCode,
		Image:       c.config.GetImage(),
		ImageRef:    c.image,
		Reason:      c.reasonShown(),
		Message:     c.message,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		Mounts:      c.config.GetMounts(),
		LogPath:     c.logPath,
	}
	if !c.started.IsZero() {
		st.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		st.FinishedAt = c.finished.UnixNano()
	}
	if image := r.images.byID[c.image]; image != nil {
		if len(image.tags) > 0 {
			st.Image = &runtimeapi.ImageSpec{Image: image.tags[0]}
		}
		if len(image.digests) > 0 {
			st.ImageRef = image.digests[0]
		}
	}
	if !r.opts.Old {
		st.ImageId, st.Resources, st.User = c.image, c.resources, c.user()
		st.StopSignal = c.config.GetStopSignal()
		if st.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
			st.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
		}
	}
	return st
}

// reasonShown returns the reason as containerd shows it: an exit without a reason gets one by its code.
func (c *container) reasonShown() string {
	switch {
	case c.reason != "" || c.state != runtimeapi.ContainerState_CONTAINER_EXITED:
		return c.reason
	case c.exitCode == 0:
		return "Completed"
	}
	return "Error"
}

func (c *container) user() *runtimeapi.ContainerUser {
	security := c.config.GetLinux().GetSecurityContext()
	return &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
		Uid:                security.GetRunAsUser().GetValue(),
		Gid:                security.GetRunAsGroup().GetValue(),
		SupplementalGroups: security.GetSupplementalGroups(),
	}}
}

// ListContainers lists the containers that match every part of the filter, in an order without meaning.
func (s *runtimeService) ListContainers(_ context.Context,
	req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r, f := s.r, req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range r.store.containersOf(f.GetPodSandboxId(), f.GetLabelSelector()) {
		if f.GetId() != "" && f.GetId() != c.id ||
			f.GetState() != nil && f.GetState().GetState() != c.state ||
			!matches(c.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		item := &runtimeapi.Container{
			Id:           c.id,
			PodSandboxId: c.sandbox.id,
			Metadata:     c.config.GetMetadata(),
			Image:        c.config.GetImage(),
			ImageRef:     c.image,
			State:        c.state,
			CreatedAt:    c.created.UnixNano(),
			Labels:       c.config.GetLabels(),
			Annotations:  c.config.GetAnnotations(),
		}
		if !r.opts.Old {
			item.ImageId = c.image
		}
		resp.Containers = append(resp.Containers, item)
	}
	return resp, nil
}

// UpdateContainerResources changes the resources that ContainerStatus reports: every field set in the request.
func (s *runtimeService) UpdateContainerResources(_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[req.GetContainerId()]
	if c == nil {
		return nil, errNotFound("failed to find container")
	}
	// Answers in progress may still refer to the old value, so it is replaced and not changed.
	updated := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{}}
	for _, layer := range []*runtimeapi.LinuxContainerResources{c.resources.GetLinux(), req.GetLinux()} {
		if layer != nil {
			proto.Merge(updated.Linux, layer)
		}
	}
	c.resources = updated
	r.touchLocked(c)
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}
