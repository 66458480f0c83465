package stack

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CutOffStarts makes containers in a pod and cuts their starts off, each a little later in the start than the one before,
// until the runtime has one that it calls exited and cannot remove, because it left its first process there. It reports
// whether there was one among so many, which is then left as it is.
func (s *Stack) CutOffStarts(ctx context.Context, image string, most int) (found bool, err error) {
	const first, step, steps = 5 * time.Millisecond, time.Millisecond, 60
	p, err := s.newPod("cut")
	if err != nil {
		return false, err
	}
	sandbox, err := s.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		return false, err
	}
	p.SandboxID = sandbox.PodSandboxId
	for i := range most {
		p.attempt = uint32(i)
		if err := s.createContainer(ctx, p, image, []string{"sleep"}); err != nil {
			return false, err
		}
		after := first + time.Duration(i%steps)*step
		cut, cancel := context.WithTimeout(ctx, after)
		_, _ = s.client.StartContainer(cut, &runtimeapi.StartContainerRequest{ContainerId: p.ContainerID})
		cancel()
		if found, err = s.stuck(ctx, p.ContainerID); found || err != nil {
			s.logf("the start of container %d was cut off after %s: the runtime cannot remove it", i, after)
			return found, err
		}
	}
	return false, nil
}

// stuck waits until the start is over, and tries to remove its result. Debian's 1.6 may never get that far; while it still starts
// a container that it calls running or exited, it refuses the removal.
func (s *Stack) stuck(ctx context.Context, id string) (bool, error) {
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(10 * time.Millisecond) {
		got, err := s.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return false, err
		}
		state := got.Status.State
		if state == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		_, err = s.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		if err == nil {
			return false, nil
		}
		if state == runtimeapi.ContainerState_CONTAINER_EXITED && status.Code(err) == codes.FailedPrecondition {
			return true, nil
		}
		s.logf("container %s, %v, is not removed yet: %v", id, state, err)
	}
	s.logf("container %s stays as it is when its start is cut off", id)
	return false, nil
}
