package pod

import (
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// planCleaning: nothing runs. The prober releases the pod and volumes are unmounted. Of a pod that has to end everything is
// removed, its cgroup last. Leads to Finished.
func (m *Machine) planCleaning() Phase {
	gone := m.ending != nil
	noted := gone && m.noted() // written while the prober and volumes release the pod
	for _, c := range m.Containers {
		if c.Actor {
			m.drop(c)
		}
	}
	if !m.unwatched() {
		return Cleaning
	}
	if !m.cleaned.volumes && m.due("unmount", "", m.Set.AnswerTimeout) {
		m.emit(Tell{messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: gone}})
		m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}}) // no further container uses them
	}
	if gone && !m.cleaned.runtime && noted && !m.now.Before(m.cleaned.retry.At) && m.due("remove", "", m.Set.Work) {
		m.emit(work.RemovePod{Pod: m.Pod})
	}
	if !m.cleaned.volumes || (gone && !m.cleaned.runtime) {
		return Cleaning
	}
	if !m.cleaned.cgroup {
		m.ask("uncgroup", "", messages.Resources, messages.RemovePodCgroup{UID: m.uid})
		return Cleaning
	}
	return Finished
}

// noted reports whether the pod's final status may be lost here. The status of a deleted pod has to be on disk before the runtime
// forgets the ends of its containers: an agent that is killed in between could only guess.
func (m *Machine) noted() bool {
	if !objectset.OfAPIServer(m.Pod) || m.Pod.DeletionTimestamp == nil || m.finalKept() {
		m.answered("note", "")
		return true
	}
	if m.due("note", "", m.Set.AnswerTimeout) {
		m.emit(Tell{messages.Pods, messages.PodEnded{UID: m.uid, Status: m.status()}})
	}
	return false
}

// finalKept reports whether the pod's final status is on disk.
func (m *Machine) finalKept() bool { return m.Wanted.Final != nil && !m.Wanted.Unkept }
