package podstatus

import (
	"cmp"
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// noRecord explains the status of an init container that the runtime no longer has. Kubernetes' node suite matches its beginning.
const noRecord = "Unable to get init container status: the runtime has no record of it, and a later container proves that it " +
	"succeeded"

// containerStatus returns the status of one container. The order of the cases is the kubelet's: an existing container takes
// precedence over a wait, and a wait after an end moves that end to the last termination state.
func (p *Pod) containerStatus(c *known.Container) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Spec.Image, VolumeMounts: p.volumeMounts(c)}
	if p.Set.Devices != nil && !c.Init && !c.Ephemeral {
		s.AllocatedResourcesStatus = p.Set.Devices(string(p.Pod.UID), c.Name)
	}
	if p.Set.Claims != nil && !c.Init && !c.Ephemeral {
		s.AllocatedResourcesStatus = append(s.AllocatedResourcesStatus, p.Set.Claims(p.Pod, c.Spec)...)
	}
	f := c.Newest()
	hold := p.Hold(c)
	if f != nil {
		s.RestartCount = int32(min(f.Attempt, math.MaxInt32))
		s.ContainerID = p.Set.RuntimeID(f.ID)
		s.Image = cmp.Or(f.Image, s.Image)
		s.ImageID = f.ImageRef
		s.State = p.stateOf(f)
		s.Resources = p.resources(c, f)
		s.AllocatedResources = s.Resources.Requests
		if objectset.OfAPIServer(p.Pod) {
			s.AllocatedResources = c.Spec.Resources.Requests.DeepCopy()
		}
		if f.User != nil {
			s.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: f.User.UID, GID: f.User.GID,
				SupplementalGroups: f.User.Groups}}
		}
		if len(c.Attempts) > 1 && c.Attempts[1].State == messages.ContainerExited {
			s.LastTerminationState = p.stateOf(&c.Attempts[1])
		}
	}
	ended := f != nil && f.State == messages.ContainerExited
	waits := func(reason, message string) {
		if ended {
			s.LastTerminationState = s.State
		}
		s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	switch {
	case f == nil && c.Init && p.Initialized(c):
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", Message: noRecord}}
	case hold != nil && (f == nil || ended && p.Live):
		waits(hold.Code, hold.Message)
	case f == nil || f.State == messages.ContainerCreated:
		waits(p.defaultWait(c), pullWord(c))
	case ended && p.Live && !c.Over(p.Pod) && (c.Earlier || !translate.Restarts(&p.Pod.Spec, c.Spec, f.ExitCode)):
		// It restarts for another cause than its end: with all others, for a new image, for a failed probe. The API server
		// accepts no other state than this one after such an end, so that it must not be reported.
		waits(p.defaultWait(c), pullWord(c))
	}
	running := s.State.Running != nil
	started := running && c.HasStarted()
	s.Ready = running && c.IsReady()
	if c.Init && !c.Sidecar() {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	}
	if s.Started = &started; c.Ephemeral { // not reported for these
		s.Ready, s.Started = false, nil
	}
	return s
}

// defaultWait returns the reason of a container that does not exist yet, if nothing has failed.
func (p *Pod) defaultWait(c *known.Container) string {
	if c.Earlier && p.Restarting {
		return messages.ReasonRestartingAll
	}
	if len(p.Pod.Spec.InitContainers) > 0 {
		return messages.ReasonPodInitializing
	}
	return messages.ReasonContainerCreating
}

// pullWord describes the pull of the container's image. The API does not need its place in the queue.
func pullWord(c *known.Container) string {
	switch a := c.Awaits(); {
	case a == nil:
		return ""
	case a.Code == messages.ReasonPulling:
		return fmt.Sprintf("the image %q is being pulled", c.Spec.Image)
	default:
		return fmt.Sprintf("the image %q waits for its turn to be pulled", c.Spec.Image)
	}
}

func (p *Pod) stateOf(f *known.Attempt) v1.ContainerState {
	switch f.State {
	case messages.ContainerRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(f.StartedAt)}}
	case messages.ContainerExited:
		return finalstatus.Terminated(&f.ContainerFact, p.Set.RuntimeID(f.ID))
	case messages.ContainerUnknown:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
			Reason: messages.ReasonUnknown, Message: "the runtime does not know the container's state; it is being stopped",
		}}
	case messages.ContainerCreated:
	}
	return v1.ContainerState{}
}

// resources returns the resources in effect of a running container, and the requested ones otherwise. A container of a manifest
// has the resources of its creation, which may differ from an edited manifest.
func (p *Pod) resources(c *known.Container, f *known.Attempt) *v1.ResourceRequirements {
	switch {
	case objectset.OfAPIServer(p.Pod) && !c.Ephemeral && f.State == messages.ContainerRunning:
		return resources.Own(p.Pod, c.Spec, p.Sized(c).Has())
	case objectset.OfAPIServer(p.Pod):
		return c.Spec.Resources.DeepCopy()
	}
	if was := p.Set.Resources(p.Pod, f.ContainerFact); was != nil {
		return resources.Own(p.Pod, c.Spec, *was)
	}
	return c.Spec.Resources.DeepCopy()
}

// volumeMounts returns the container's mounts of volumes. For a read-only one they include whether mounts below it are read-only,
// too (KEP-3857), which depends on the runtime's handler.
func (p *Pod) volumeMounts(c *known.Container) []v1.VolumeMountStatus {
	var out []v1.VolumeMountStatus
	for i := range c.Spec.VolumeMounts {
		vm := &c.Spec.VolumeMounts[i]
		s := v1.VolumeMountStatus{Name: vm.Name, MountPath: vm.MountPath, ReadOnly: vm.ReadOnly}
		if vm.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if wants := vm.RecursiveReadOnly; wants != nil && *wants != v1.RecursiveReadOnlyDisabled && p.recursive(c) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

// recursive reports whether the handler of the container's sandbox supports it. Without a sandbox the handler of a pod with a
// RuntimeClass is unknown.
func (p *Pod) recursive(c *known.Container) bool {
	if len(p.Sandboxes.All) == 0 {
		return p.Pod.Spec.RuntimeClassName == nil && p.Set.RecursiveReadOnly("")
	}
	handler := p.Sandboxes.All[0].Handler
	if f := c.Newest(); f != nil {
		if s := p.Sandboxes.Of(f.SandboxID); s != nil {
			handler = s.Handler
		}
	}
	return p.Set.RecursiveReadOnly(handler)
}
