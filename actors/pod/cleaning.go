package pod

import (
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
)

// planCleaning: nothing runs. The prober releases the pod, volumes are unmounted, and the cgroup is removed. Of a pod that has to
// end, the remains in the runtime go last, since users wait for the deletion of its object only. Leads to Finished.
func (m *Machine) planCleaning() Phase {
	gone := m.ending != nil
	// The runtime may complete a start after its timeout. The removal stops such a container; until then its volumes are busy.
	late := gone && slices.ContainsFunc(m.Containers, func(c *known.Container) bool { return c.Alive() })
	for _, c := range m.Containers {
		if c.Actor {
			m.drop(c)
		}
	}
	if !m.probesReleased() {
		return Cleaning
	}
	if !m.cleaned.volumes {
		if m.due("unmount", "", m.Set.AnswerTimeout) {
			m.emit(Tell{messages.Volumes, messages.UnmountVolumes{UID: m.uid, Remove: gone}})
			m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}}) // no further container uses them
		}
		if late || gone && m.cleaned.published != nil {
			m.forget(false)
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
	m.forget(!late)
	return Cleaning
}

// forget removes the remains in the runtime, once they may go.
func (m *Machine) forget(release bool) {
	if !m.cleaned.runtime && m.forgettable(release) && !m.now.Before(m.cleaned.retry.At) && m.due("remove", "", m.Set.Work) {
		m.emit(work.RemovePod{Pod: m.Pod})
	}
}

// forgettable reports whether the runtime may forget how the containers of a deleted pod of the API server ended: its object is
// gone, or its final status is on disk. An agent that is killed before that reads the ends from the runtime again, and has to
// guess none. With release, nothing else is left of the pod, and its object may go.
func (m *Machine) forgettable(release bool) bool {
	if !objectset.OfAPIServer(m.Pod) || m.Pod.DeletionTimestamp == nil {
		return true
	}
	kept := m.Wanted.ObjectGone || m.finalKept()
	if kept && (m.cleaned.released || !release) {
		m.answered("release", "")
	} else if m.due("release", "", m.Set.AnswerTimeout) {
		m.cleaned.released = m.cleaned.released || release
		m.emit(Tell{messages.Pods, messages.PodEnded{UID: m.uid, Released: release, Status: m.status()}})
	}
	return kept
}

// finalKept reports whether the pod's final status is on disk.
func (m *Machine) finalKept() bool { return m.Wanted.Final != nil && !m.Wanted.Unkept }
