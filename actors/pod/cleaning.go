package pod

import (
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// planCleaning: nothing runs. The prober releases the pod, volumes are unmounted, and the cgroup is removed. Of a pod that has to
// end, the remains in the runtime go last, since users wait for the deletion of its object only. Leads to Finished.
func (m *Machine) planCleaning() Phase {
	gone := m.ending != nil
	for _, c := range m.Containers {
		if c.Actor {
			m.drop(c)
		}
	}
	if !m.unwatched() {
		return Cleaning
	}
	if !m.cleaned.volumes {
		if m.due("unmount", "", m.Set.AnswerTimeout) {
			m.emit(Tell{messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: gone}})
			m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}}) // no further container uses them
		}
		return Cleaning
	}
	if !m.cleaned.cgroup {
		m.ask("uncgroup", "", messages.Resources, messages.RemovePodCgroup{UID: m.uid})
		return Cleaning
	}
	if !gone || m.cleaned.runtime {
		return Finished
	}
	if m.forgettable() && !m.now.Before(m.cleaned.retry.At) && m.due("remove", "", m.Set.Work) {
		m.emit(work.RemovePod{Pod: m.Pod})
	}
	return Cleaning
}

// forgettable releases a deleted pod of the API server, and reports whether the runtime may forget how its containers ended: its
// object is gone, or its final status is on disk. An agent that is killed before that reads the ends from the runtime again, and
// has to guess none.
func (m *Machine) forgettable() bool {
	if !objectset.OfAPIServer(m.Pod) || m.Pod.DeletionTimestamp == nil {
		return true
	}
	kept := m.Wanted.ObjectGone || m.finalKept()
	if kept && m.cleaned.released {
		m.answered("release", "")
	} else if m.due("release", "", m.Set.AnswerTimeout) {
		m.cleaned.released = true
		m.emit(Tell{messages.Pods, messages.PodEnded{UID: m.uid, Released: true, Status: m.status()}})
	}
	return kept
}

// finalKept reports whether the pod's final status is on disk.
func (m *Machine) finalKept() bool { return m.Wanted.Final != nil && !m.Wanted.Unkept }
