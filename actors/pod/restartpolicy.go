package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	retries "github.com/playlet-dev/playlet/actors/internal/backoff"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// answer is what restartPolicy says about the end of a container.
type answer int

const (
	restart answer = iota // start it again, after back-off
	leave                 // it is done; leave it ended
	failPod               // it is done, and the pod has failed with it
)

// policy is what follows the end of a container by restartPolicy, its own rules before the pod's. An init container must
// succeed; a sidecar (an init container with restartPolicy Always, KEP-753) never ends for good.
func policy(pod *v1.Pod, spec *v1.Container, init bool, f messages.ContainerFact) answer {
	sidecar, again := init && translate.RestartsAlways(spec), translate.Restarts(&pod.Spec, spec, f.ExitCode)
	switch {
	case sidecar:
		return restart
	case init && f.ExitCode == 0:
		return leave
	case init && !again:
		return failPod
	case again:
		return restart
	default:
		return leave
	}
}

// strategy is the same as a supervision strategy for the container's actor. Its functions read the machine as it is when the
// actor exits; they run on the pod's mailbox. Of a pod that is ending nothing is restarted.
func (m *Machine) strategy(c *container) supervisors.ExitStrategy {
	answers := func(want answer) func(any) bool {
		return func(result any) bool {
			end, ok := result.(messages.ContainerEnded)
			return ok && end.Fact.State == messages.ContainerExited && c.spec != nil && m.live() &&
				c.answer(m.pod, end.Fact) == want
		}
	}
	s := supervisors.ExitStrategy{
		Restart: supervisors.Transient, Failed: answers(restart), Escalate: answers(failPod),
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

// BackOff is the kubelet's back-off between a container's end and its next start: at once the first time, then Base
// doubling to Max, counted from the end, forgotten after twice Max without a restart.
type BackOff struct {
	Base, Max time.Duration
}

// backoff is one container's place in it.
type backoff struct {
	step int       // restarts so far, since it was last forgotten
	last time.Time // when the last one was
}

// wait is how long the container is held back after an end.
func (p BackOff) wait(step int) time.Duration {
	if step <= 0 {
		return 0
	}
	return retries.Policy{First: p.Base, Max: p.Max}.After(step, 0)
}

// after is when a container that ended at the given time may start again. A clock that was set back lengthens no wait.
func (p BackOff) after(now time.Time, b backoff, ended time.Time) time.Time {
	if b.step == 0 || p.expired(b, ended) {
		return now
	}
	return now.Add(min(ended.Sub(now), 0) + p.wait(b.step))
}

// next is the back-off after a restart now of a container that ended at the given time.
func (p BackOff) next(b backoff, ended, now time.Time) backoff {
	if p.expired(b, ended) {
		return backoff{step: 1, last: now}
	}
	return backoff{step: b.step + 1, last: now}
}

func (p BackOff) expired(b backoff, ended time.Time) bool {
	return b.step > 0 && ended.Sub(b.last) > 2*p.Max
}
