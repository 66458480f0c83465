package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// strategy returns the supervision strategy for a container's actor, by the restart rules of the container. Its functions read
// the machine when the actor exits, on the pod's mailbox. In an ending pod nothing is restarted.
func (m *Machine) strategy(c *known.Container) supervisors.ExitStrategy {
	answers := func(want restarts.Answer) func(any) bool {
		return func(result any) bool {
			end, ok := result.(messages.ContainerEnded)
			return ok && end.Fact.State == messages.ContainerExited && c.Spec != nil && m.live() &&
				c.Answer(m.Pod, end.Fact) == want
		}
	}
	s := supervisors.ExitStrategy{
		Restart: supervisors.Transient, Failed: answers(restarts.Again), Escalate: answers(restarts.FailPod),
		Delay: func(now time.Time, result any) time.Duration {
			end, _ := result.(messages.ContainerEnded)
			if c.Stage() == messages.StageStarting && end.Fact.Attempt < c.Attempt {
				return 0 // a repeated end: its back-off is over, and the next attempt waits for an actor
			}
			return m.RestartTime(now, c, end.Fact.FinishedAt).Sub(now)
		},
	}
	switch {
	case c.Spec == nil || c.Ephemeral || !m.live():
		s.Restart = supervisors.Temporary
	case c.Sidecar(), !c.Init && len(c.Spec.RestartPolicyRules) == 0 &&
		translate.RestartPolicy(&m.Pod.Spec, c.Spec) == v1.RestartPolicyAlways:
		s.Restart = supervisors.Permanent
	case len(c.Spec.RestartPolicyRules) == 0 && translate.RestartPolicy(&m.Pod.Spec, c.Spec) == v1.RestartPolicyNever:
		s.Restart = supervisors.Temporary
	}
	return s
}
