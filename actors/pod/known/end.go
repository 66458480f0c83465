package known

import (
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
)

// Verdict is the result of a pod that ended by itself.
type Verdict struct {
	Phase   v1.PodPhase
	Reason  string
	Message string
	// Disruption is the message of the condition DisruptionTarget if the node ended it (KEP-3329).
	Disruption string
	Cause      messages.Cause
}

// Judge returns the verdict of a pod that ends by itself, or nil.
func (s *State) Judge(now time.Time) *Verdict {
	if f := s.Wanted.Fail; f != nil { // the node has to end it
		return &Verdict{Phase: v1.PodFailed, Reason: f.Reason, Message: f.Message, Disruption: f.Disruption, Cause: f.Cause}
	}
	if said := &s.Pod.Status; objectset.OfAPIServer(s.Pod) && finalstatus.Final(said.Phase) { // others have set its phase
		return &Verdict{Phase: said.Phase, Reason: said.Reason, Message: said.Message}
	}
	if at, ok := s.Deadline(); ok && !now.Before(at) {
		return &Verdict{
			Phase: v1.PodFailed, Reason: messages.ReasonDeadlineExceeded,
			Message: fmt.Sprintf("the pod was active for longer than its activeDeadlineSeconds (%d)",
				*s.Pod.Spec.ActiveDeadlineSeconds),
		}
	}
	if r := s.NoPlace; r != nil { // another node may have a place (KEP-4876)
		return &Verdict{Phase: v1.PodFailed, Reason: messages.ReasonAttachLimit, Cause: r.Cause,
			Message: "Pod was rejected: Node has reached its volume attachment limit: " + r.Message}
	}
	for _, c := range s.Containers {
		f := c.Exited()
		if c.Init && c.Spec != nil && f != nil && !c.Replace && c.Verdict(s.Pod, &f.ContainerFact) == messages.ExitEscalates {
			return &Verdict{Phase: v1.PodFailed}
		}
	}
	succeeded, regular := true, 0
	for _, c := range s.Containers {
		if !c.Regular() {
			continue
		}
		regular++
		if !c.Over(s.Pod) {
			return nil
		}
		succeeded = succeeded && c.Exited().ExitCode == 0
	}
	switch {
	case regular == 0:
		return nil
	case succeeded:
		return &Verdict{Phase: v1.PodSucceeded}
	default:
		return &Verdict{Phase: v1.PodFailed}
	}
}

// Deadline returns when the pod's activeDeadlineSeconds are over, if it has any. They count from the pod's start time. The
// kubelet compares status.startTime with the wall clock at each sync, so that a clock that is set ends pods early or late. Here
// the wall clock counts once, when this process first learns the recorded start; from then on the deadline is monotonic. After a
// restart of the agent with a clock that was set back before the start, a pod has its whole activeDeadlineSeconds again, and no
// more. With a clock that was set forward, it ends as with the kubelet: the time that has really passed is unknown.
func (s *State) Deadline() (time.Time, bool) {
	if s.Pod == nil || s.Pod.Spec.ActiveDeadlineSeconds == nil || s.Started.IsZero() {
		return time.Time{}, false
	}
	return s.active.Add(time.Duration(min(*s.Pod.Spec.ActiveDeadlineSeconds, math.MaxInt32)) * time.Second), true
}

// Grace returns the grace period of the pod's containers.
func (s *State) Grace() time.Duration {
	var asked *int64
	if s.Wanted.Ending != nil {
		asked = s.Wanted.Ending.Grace
	}
	grace := podspec.GracePeriod(s.Wanted.Pod.Spec.TerminationGracePeriodSeconds, asked)
	if f := s.Wanted.Fail; f != nil && f.Grace != nil {
		grace = min(grace, podspec.GracePeriod(f.Grace))
	}
	return grace
}
