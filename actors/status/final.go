package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/messages"
)

// finish makes the status the last one of a pod of which nothing is left, as the kubelet does: no container waits or runs,
// and the phase is one of those in which a pod has ended. It changes out.
func finish(pod *v1.Pod, out *v1.PodStatus, now time.Time) {
	if initialized(&pod.Spec, out) {
		for i := range out.ContainerStatuses {
			lost(&out.ContainerStatuses[i])
		}
	}
	for i := range begun(out.InitContainerStatuses) {
		lost(&out.InitContainerStatuses[i])
	}
	if !terminal(out.Phase) {
		out.Phase = v1.PodFailed
		if succeeded(out.ContainerStatuses) {
			out.Phase = v1.PodSucceeded
		}
	}
	for i := range out.Conditions {
		c := &out.Conditions[i]
		if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && c.Status == v1.ConditionTrue {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, endReason(out.Phase), ""
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
	}
}

// lost marks a container as ended, of whose end nothing is known.
func lost(s *v1.ContainerStatus) {
	if s.State.Terminated != nil {
		return
	}
	started := false
	s.Ready, s.Started = false, &started
	s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: messages.ReasonUnknown, ExitCode: 137, Message: "nothing of the container was found when the pod had ended",
	}}
}

// initialized says that a regular container may have been started. Those of a pod that came no further than its init
// containers stay waiting.
func initialized(spec *v1.PodSpec, s *v1.PodStatus) bool {
	if len(spec.InitContainers) == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	last := &spec.InitContainers[len(spec.InitContainers)-1]
	c := named(s.InitContainerStatuses, last.Name)
	switch {
	case c == nil:
		return false
	case last.RestartPolicy != nil && *last.RestartPolicy == v1.ContainerRestartPolicyAlways:
		return c.State.Running != nil && c.Started != nil && *c.Started
	default:
		return ended(c.State) || ended(c.LastTerminationState)
	}
}

func ended(s v1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ExitCode == 0 }

// begun are the init containers up to the last one that was ever started, and at least the first.
func begun(all []v1.ContainerStatus) []v1.ContainerStatus {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].State.Waiting == nil || all[i].LastTerminationState.Terminated != nil {
			return all[:i+1]
		}
	}
	return all[:min(1, len(all))]
}

func succeeded(all []v1.ContainerStatus) bool {
	for i := range all {
		if !ended(all[i].State) {
			return false
		}
	}
	return len(all) > 0
}
