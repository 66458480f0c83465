package pod

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// settleContainers gives the containers of a pod that is over an end, where none is known: they never ran, or the runtime has
// lost them. As with the kubelet they count as failed, so that nobody takes the pod for a success; containers whose turn
// never came, since initialization did not get so far, go on waiting.
func (m *Machine) settleContainers(s *v1.PodStatus) {
	if m.phase != Cleaning && m.phase != Finished {
		return
	}
	if hadItsTurn(s) {
		for i := range s.ContainerStatuses {
			unlocated(&s.ContainerStatuses[i])
		}
	}
	last := 0 // the first init container had its turn in any case
	for i := range s.InitContainerStatuses {
		if c := &s.InitContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			last = i
		}
	}
	for i := range s.InitContainerStatuses[:min(last+1, len(s.InitContainerStatuses))] {
		unlocated(&s.InitContainerStatuses[i])
	}
}

// hadItsTurn says that initialization was over: there was none, a regular container has been there, or the last init container
// succeeded.
func hadItsTurn(s *v1.PodStatus) bool {
	inits := len(s.InitContainerStatuses)
	if inits == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	last := &s.InitContainerStatuses[inits-1]
	for _, end := range []*v1.ContainerStateTerminated{last.State.Terminated, last.LastTerminationState.Terminated} {
		if end != nil && end.ExitCode == 0 {
			return true
		}
	}
	return false
}

func unlocated(c *v1.ContainerStatus) {
	if c.State.Terminated == nil {
		c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: 137, Reason: messages.ReasonUnknown, Message: "nothing was there of the container when the pod ended",
		}}
	}
}
