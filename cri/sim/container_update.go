package sim

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainerResources changes what ContainerStatus reports: every field of the request that is set.
func (s *runtimeService) UpdateContainerResources(_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.store.containers[req.GetContainerId()]
	if c == nil {
		return nil, errNotFound("failed to find container")
	}
	// Answers under way still refer to the old value, so a new one takes its place.
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
