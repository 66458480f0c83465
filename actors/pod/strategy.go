package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// strategy is what follows the ends of a container as a supervision strategy for its actor. Its functions read the machine as it
// is when the actor exits; they run on the pod's mailbox. Of a pod that is ending nothing is restarted.
func (m *Machine) strategy(c *container) supervisors.ExitStrategy {
	answers := func(want restarts.Answer) func(any) bool {
		return func(result any) bool {
			end, ok := result.(messages.ContainerEnded)
			return ok && end.Fact.State == messages.ContainerExited && c.spec != nil && m.live() &&
				c.answer(m.pod, end.Fact) == want
		}
	}
	s := supervisors.ExitStrategy{
		Restart: supervisors.Transient, Failed: answers(restarts.Again), Escalate: answers(restarts.FailPod),
		Delay: func(now time.Time, result any) time.Duration {
			end, _ := result.(messages.ContainerEnded)
			if c.stage == messages.StageStarting && end.Fact.Attempt < c.attempt {
				return 0 // an end that is told once more: its back-off is over, and the next attempt waits for an actor
			}
			return m.restartTime(now, c, end.Fact.FinishedAt).Sub(now)
		},
	}
	switch {
	case c.spec == nil || c.ephemeral || !m.live():
		s.Restart = supervisors.Temporary
	case c.sidecar(), !c.init && len(c.spec.RestartPolicyRules) == 0 &&
		translate.RestartPolicy(&m.pod.Spec, c.spec) == v1.RestartPolicyAlways:
		s.Restart = supervisors.Permanent
	case len(c.spec.RestartPolicyRules) == 0 && translate.RestartPolicy(&m.pod.Spec, c.spec) == v1.RestartPolicyNever:
		s.Restart = supervisors.Temporary
	}
	return s
}
