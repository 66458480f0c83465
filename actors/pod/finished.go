package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// planFinished: the pod is over. A pod that finished by itself keeps its dead containers, for their logs, until no source lists
// it. Leads to Terminating, when it has to be removed.
func (m *Machine) planFinished() Phase {
	gone := m.cleaned.runtime
	if m.ending != nil && !gone {
		m.cleaned, m.ends = cleanup{}, time.Time{}
		m.answered("ended", "")
		return Terminating
	}
	acknowledged := !gone && m.finalKept()
	if !acknowledged && m.due("ended", "", m.Set.AnswerTimeout) {
		m.emit(Tell{messages.Pods, messages.PodEnded{UID: m.uid, Gone: gone, Status: m.status()}})
	}
	return Finished
}
