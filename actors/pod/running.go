package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// planRunning: every container has its turn, and is started again as restartPolicy says. Leads back to Preparing when
// the sandbox is lost, to Terminating when all is done, or asked to end.
func (m *Machine) planRunning(now time.Time) Phase {
	if m.over(now) {
		return Terminating
	}
	if m.lost() {
		return m.prepareAgain()
	}
	m.mount(now)
	m.ensureCgroup(now)
	m.clearRemoved(now)
	m.resize(now)
	for _, c := range m.containers {
		if c.spec == nil || (c.init && !c.sidecar()) {
			continue
		}
		m.ensure(now, c)
	}
	return Running
}

// over reports whether the pod has to end: it is asked to, it has run for as long as it may, or all is done.
func (m *Machine) over(now time.Time) bool {
	if m.ending == nil && m.verdict == nil {
		if m.verdict = m.failed(); m.verdict == nil {
			m.verdict = m.judge(now)
			m.recordDeadline()
		}
	}
	return m.ending != nil || m.verdict != nil
}

// failed is the verdict of the node, where it has to end the pod.
func (m *Machine) failed() *verdict {
	f := m.desired.Fail
	if f == nil {
		return nil
	}
	return &verdict{phase: v1.PodFailed, reason: f.Reason, message: f.Message, disruption: f.Disruption}
}

func (m *Machine) judge(now time.Time) *verdict {
	if v := m.judged(); v != nil {
		return v
	}
	if at, ok := m.deadline(); ok && !now.Before(at) {
		return &verdict{
			phase: v1.PodFailed, reason: messages.ReasonDeadlineExceeded,
			message: fmt.Sprintf("the pod was active for longer than its activeDeadlineSeconds (%d)",
				*m.pod.Spec.ActiveDeadlineSeconds),
		}
	}
	for _, c := range m.containers {
		f := c.exited()
		if c.init && c.spec != nil && f != nil && !c.replace && c.answer(m.pod, *f) == failPod {
			return &verdict{phase: v1.PodFailed}
		}
	}
	succeeded, regular := true, 0
	for _, c := range m.containers {
		if !c.regular() {
			continue
		}
		regular++
		if !c.over(m.pod) {
			return nil
		}
		succeeded = succeeded && c.exited().ExitCode == 0
	}
	switch {
	case regular == 0:
		return nil
	case succeeded:
		return &verdict{phase: v1.PodSucceeded}
	default:
		return &verdict{phase: v1.PodFailed}
	}
}
