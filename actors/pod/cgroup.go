package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// ensureCgroup asks for the pod's cgroup, as it is to be now. Everything that is started in the pod lies within.
func (m *Machine) ensureCgroup(now time.Time) {
	if pod := m.group(); pod != m.cgroup.of {
		m.cgroup.of, m.cgroup.ready = pod, false
		m.answered("cgroup", "")
	}
	if m.cgroup.ready || !m.due(now, "cgroup", "", m.set.AnswerTimeout) {
		return
	}
	m.emit(Tell{messages.Resources, messages.EnsurePodCgroup{UID: m.uid, Pod: m.cgroup.of}})
}

// removeCgroup asks for it to be removed, once nothing of the pod is there that needs it.
func (m *Machine) removeCgroup(now time.Time) {
	if m.due(now, "uncgroup", "", m.set.AnswerTimeout) {
		m.emit(Tell{messages.Resources, messages.RemovePodCgroup{UID: m.uid}})
	}
}

// takeCgroup notes what is said of the pod's cgroup.
func (m *Machine) takeCgroup(msg any) {
	switch v := msg.(type) {
	case messages.PodCgroupReady:
		if v.Pod == m.cgroup.of || m.cgroup.of == nil && v.Pod == m.pod {
			m.answered("cgroup", "")
			m.cgroup = cgroup{ready: true, of: v.Pod, has: v.Pod, parent: v.Parent}
		}
	case messages.PodCgroupFailed:
		m.recordCgroup(v.Reason)
		if m.resizing.active {
			m.resizeFailed(m.now)
		}
		m.cgroup.reason = &v.Reason // resources goes on trying; the question stays open
	case messages.PodCgroupRemoved:
		m.cgroup.ready, m.cgroup.has = false, nil
		m.answered("uncgroup", "")
		m.cleaned.cgroup = m.phase == Cleaning
	}
}
