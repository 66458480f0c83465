package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/podstatus"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
)

// planRunning: every container has its turn, and is started again as restartPolicy says. Leads back to Preparing when
// the sandbox is lost, to Terminating when all is done, or asked to end.
func (m *Machine) planRunning() Phase {
	if to := m.upkeep(); to != "" {
		return to
	}
	for _, c := range m.Containers {
		if c.Spec == nil || (c.Init && !c.Sidecar()) {
			continue
		}
		m.ensure(c)
	}
	return Running
}

// over reports whether the pod has to end: it is asked to, it has run for as long as it may, or all is done.
func (m *Machine) over() bool {
	if m.ending == nil && m.verdict == nil {
		m.verdict = m.judge()
		m.recordDeadline()
	}
	return m.ending != nil || m.verdict != nil
}

// judge is why the pod ends by itself; nil where it does not.
func (m *Machine) judge() *podstatus.Verdict {
	if f := m.desired.Fail; f != nil { // the node has to end it
		return &podstatus.Verdict{Phase: v1.PodFailed, Reason: f.Reason, Message: f.Message, Disruption: f.Disruption}
	}
	if s := &m.Pod.Status; objectset.OfAPIServer(m.Pod) && finalstatus.Final(s.Phase) { // others have set its phase
		return &podstatus.Verdict{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
	}
	if at, ok := m.deadline(); ok && !m.now.Before(at) {
		return &podstatus.Verdict{
			Phase: v1.PodFailed, Reason: messages.ReasonDeadlineExceeded,
			Message: fmt.Sprintf("the pod was active for longer than its activeDeadlineSeconds (%d)",
				*m.Pod.Spec.ActiveDeadlineSeconds),
		}
	}
	for _, c := range m.Containers {
		f := c.Exited()
		if c.Init && c.Spec != nil && f != nil && !c.Replace && c.Answer(m.Pod, f.ContainerFact) == restarts.FailPod {
			return &podstatus.Verdict{Phase: v1.PodFailed}
		}
	}
	succeeded, regular := true, 0
	for _, c := range m.Containers {
		if !c.Regular() {
			continue
		}
		regular++
		if !c.Over(m.Pod) {
			return nil
		}
		succeeded = succeeded && c.Exited().ExitCode == 0
	}
	switch {
	case regular == 0:
		return nil
	case succeeded:
		return &podstatus.Verdict{Phase: v1.PodSucceeded}
	default:
		return &podstatus.Verdict{Phase: v1.PodFailed}
	}
}
