package podstatus

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// settlePhase sets the pod's phase, reason and message. As with the kubelet, a pod becomes final only when nothing of it runs:
// until then it may hold resources that others wait for. A pod that continues is not final either: its ended containers start
// again, whatever their exit codes (a container that a probe ended, or that its next version replaces, may have ended well), and
// the API server does not accept a way back from Succeeded or Failed.
func (p *Pod) settlePhase(s *v1.PodStatus) {
	s.Phase = phaseOf(p.Pod, s)
	if p.Verdict != nil {
		s.Phase, s.Reason, s.Message = p.Verdict.Phase, p.Verdict.Reason, p.Verdict.Message
	}
	if finalstatus.Final(s.Phase) && (p.mayRun() || p.Live && p.Verdict == nil) {
		s.Phase, s.Reason, s.Message = v1.PodPending, "", ""
		if p.HasRun() {
			s.Phase = v1.PodRunning
		}
	}
}

// mayRun reports whether a container runs, or a start may still be in progress.
func (p *Pod) mayRun() bool {
	return p.Unsure || slices.ContainsFunc(p.Containers, func(c *known.Container) bool {
		return c.Alive() || c.Stage() == messages.StageStarting
	})
}

// phaseOf derives the pod's phase from its containers' statuses, by the rules of the pod life cycle.
func phaseOf(pod *v1.Pod, s *v1.PodStatus) v1.PodPhase {
	pendingInit, inits := false, false
	for i := range s.InitContainerStatuses {
		c, spec := &s.InitContainerStatuses[i], &pod.Spec.InitContainers[i]
		ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		switch {
		case translate.RestartsAlways(spec):
			pendingInit = pendingInit || (c.State.Running == nil && ended == nil)
		case c.State.Running != nil: // also in a pod that is initialized again in a new sandbox
			pendingInit, inits = true, true
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
		case ended != nil && ended.ExitCode != 0 && !translate.Restarts(&pod.Spec, spec, ended.ExitCode):
			return v1.PodFailed
		default:
			pendingInit = true
		}
	}
	var running, waiting, stopped, succeeded, again int
	for i := range s.ContainerStatuses {
		c, spec := &s.ContainerStatuses[i], &pod.Spec.Containers[i]
		ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		switch {
		case c.State.Running != nil:
			running++
		case ended == nil:
			waiting++
		default:
			stopped++
			if c.State.Terminated != nil && ended.ExitCode == 0 {
				succeeded++
			}
			if translate.Restarts(&pod.Spec, spec, ended.ExitCode) {
				again++
			}
		}
	}
	switch {
	case inits, pendingInit && running+stopped == 0, waiting > 0, running+stopped == 0:
		return v1.PodPending
	case running > 0, again > 0:
		return v1.PodRunning
	case stopped == succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

// settleEnd completes the last status of a pod without running containers. A pod of the API server that has to end also gets its
// final phase, by which clients recognize its end. As with the kubelet, a pod of a manifest keeps its phase.
func (p *Pod) settleEnd(s *v1.PodStatus) {
	if !p.Over {
		return
	}
	finalstatus.EndContainers(&p.Pod.Spec, s)
	if p.Wanted.Ending != nil && objectset.OfAPIServer(p.Pod) && !finalstatus.Final(s.Phase) {
		s.Phase = finalstatus.Phase(s)
	}
}
