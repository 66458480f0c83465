package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// planCleaning: nothing runs. The prober lets go, volumes are unmounted; of a pod that nobody wants, everything is removed; its
// control group goes last. Leads to Finished.
func (m *Machine) planCleaning(now time.Time) Phase {
	gone := m.ending != nil
	for _, c := range m.cons {
		if c.actor {
			m.drop(c)
		}
	}
	if !m.unwatched() {
		return Cleaning
	}
	if !m.cleaned.volumes && m.due(now, "unmount", "", m.set.Patience) {
		m.emit(Tell{messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: gone}})
	}
	if gone && !m.cleaned.runtime && !now.Before(m.cleaned.retry) && m.due(now, "remove", "", m.set.Work) {
		m.emit(RemovePod{})
	}
	if !m.cleaned.volumes || (gone && !m.cleaned.runtime) {
		return Cleaning
	}
	if !m.cleaned.cgroup {
		m.removeCgroup(now)
		return Cleaning
	}
	return Finished
}
