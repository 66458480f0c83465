// Package finalstatus has the rules for the last status of a pod, which are the kubelet's: no container waits or runs any more,
// the phase is Succeeded or Failed, and the pod is not ready. All functions are pure.
package finalstatus

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// The kubelet's reasons for a pod that is not ready because it has ended.
const (
	ReasonCompleted = "PodCompleted"
	ReasonFailed    = "PodFailed"
)

// Final reports whether a pod never leaves the phase.
func Final(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// Settle turns s into the last status of a pod that has ended completely. It changes s.
func Settle(spec *v1.PodSpec, s *v1.PodStatus, now time.Time) {
	EndContainers(spec, s)
	if !Final(s.Phase) {
		s.Phase = Phase(s)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && c.Status == v1.ConditionTrue {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, NotReady(s.Phase), ""
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
	}
}

// NotReady is the reason for which a pod that has ended in this phase is not ready.
func NotReady(phase v1.PodPhase) string {
	if phase == v1.PodSucceeded {
		return ReasonCompleted
	}
	return ReasonFailed
}

// Phase is Succeeded where all regular containers ended well, and else Failed.
func Phase(s *v1.PodStatus) v1.PodPhase {
	failed := func(c v1.ContainerStatus) bool { return !endedWell(c.State) }
	if len(s.ContainerStatuses) == 0 || slices.ContainsFunc(s.ContainerStatuses, failed) {
		return v1.PodFailed
	}
	return v1.PodSucceeded
}

// EndContainers sets an end for containers without one: they never ran, or the runtime has lost them. They count as failed,
// so that the pod does not appear to have succeeded. Containers that initialization did not reach stay waiting. It changes s.
func EndContainers(spec *v1.PodSpec, s *v1.PodStatus) {
	if initialized(spec, s) {
		lose(s.ContainerStatuses)
	}
	reached := min(1, len(s.InitContainerStatuses)) // the first one was to run in any case
	for i := range s.InitContainerStatuses {
		if hasRun(&s.InitContainerStatuses[i]) {
			reached = i + 1
		}
	}
	lose(s.InitContainerStatuses[:reached])
}

func lose(all []v1.ContainerStatus) {
	for i := range all {
		c := &all[i]
		if c.State.Terminated != nil {
			continue
		}
		c.Ready, c.Started = false, new(bool)
		c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: messages.ReasonUnknown, ExitCode: 137, Message: "nothing of the container was found when the pod had ended",
		}}
	}
}

// initialized reports whether a regular container may have been started.
func initialized(spec *v1.PodSpec, s *v1.PodStatus) bool {
	if len(spec.InitContainers) == 0 || find.In(s.ContainerStatuses, hasRun) != nil {
		return true
	}
	last := &spec.InitContainers[len(spec.InitContainers)-1]
	switch c := find.In(s.InitContainerStatuses, func(c *v1.ContainerStatus) bool { return c.Name == last.Name }); {
	case c == nil:
		return false
	case translate.RestartsAlways(last) && c.State.Running != nil:
		return c.Started != nil && *c.Started
	default:
		return endedWell(c.State) || endedWell(c.LastTerminationState)
	}
}

// hasRun reports whether the container was ever started.
func hasRun(c *v1.ContainerStatus) bool {
	return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
}

func endedWell(s v1.ContainerState) bool { return s.Terminated != nil && s.Terminated.ExitCode == 0 }

// Learn records the ends of containers from the runtime where s has an older state. It changes s.
func Learn(s *v1.PodStatus, found []messages.ContainerFact) {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			f := find.In(found, func(f *messages.ContainerFact) bool { return f.Name == list[i].Name }) // the newest comes first
			if f != nil && f.State == messages.ContainerExited {
				learn(&list[i], f)
			}
		}
	}
}

func learn(c *v1.ContainerStatus, f *messages.ContainerFact) {
	scheme, id, known := strings.Cut(c.ContainerID, "://")
	if !known || id != f.ID && c.State.Terminated != nil && !f.FinishedAt.After(c.State.Terminated.FinishedAt.Time) {
		return // without an earlier status there is nothing to go on from
	}
	c.ContainerID = scheme + "://" + f.ID
	c.RestartCount = max(c.RestartCount, int32(min(f.Attempt, 1<<30)))
	c.Ready, c.Started = false, new(bool)
	c.State = Terminated(f, c.ContainerID)
}

// Terminated is the state of a container that has ended, with its ID as statuses have it.
func Terminated(f *messages.ContainerFact, id string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: f.ExitCode, Reason: f.Reason, Message: f.Message, ContainerID: id,
		StartedAt: metav1.NewTime(f.StartedAt), FinishedAt: metav1.NewTime(f.FinishedAt),
	}}
}
