package pod

import (
	"time"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
)

func (m *Machine) takeWanted(w messages.PodWanted) {
	m.answered("desired", "")
	changed := m.Wanted == nil || m.Wanted.Pod != w.Pod
	if m.Wanted != nil && m.Wanted.Ending != nil && w.Ending == nil {
		w.Ending = m.Wanted.Ending // an end is never withdrawn
	}
	if m.Wanted != nil && m.Wanted.NoNetwork != nil && w.NoNetwork == nil {
		m.sandboxing.retry.At = time.Time{} // a step that failed without a network is retried at once
	}
	if m.ending == nil && w.Ending != nil {
		m.answered("unmount", "") // from now on it has to be removed, too
		m.cleaned.volumes = false
	}
	first := m.Wanted == nil
	m.Wanted, m.ending = &w, w.Ending
	if sooner := m.now.Add(m.Grace()); (m.ending != nil || w.Fail != nil) && !m.ends.IsZero() && sooner.Before(m.ends) {
		m.ends = sooner // sent to each container with its stop
	}
	if !changed {
		m.reportedAt = time.Time{} // the parent has not received the status
		return
	}
	was := m.Pod
	m.Pod = w.Pod
	m.Sandboxes.HostNet = w.Pod.Spec.HostNetwork
	m.MatchSpec()
	for _, c := range m.Containers {
		m.respec(c)
	}
	m.volumes.mounted = false // volumes mounts the volumes of the new spec, and finds the present ones
	m.answered("mount", "")
	if first {
		m.Seed(m.now)
	} else {
		m.begins(was)
	}
	if m.Started.IsZero() {
		m.SetStart(m.now, m.now)
	}
}

// respec restarts a container that waits for its next start, at once, from its new spec.
func (m *Machine) respec(c *known.Container) {
	c.Image.Forget()
	c.Retry = restarts.Retry{}
	m.answered("image", c.Name)
	f := c.Exited()
	if c.Spec == nil || f == nil || c.Stage() != messages.StageIdle || !m.live() || c.Over(m.Pod) || !m.Outdated(c, f) {
		return
	}
	c.Replace = true // at once
}

func (m *Machine) takeService(service messages.Address) {
	switch service {
	case messages.Volumes:
		m.volumes.resend = true
		m.answered("mount", "")
		m.answered("unmount", "")
	case messages.Prober:
		m.watchAnew()
	case messages.Resources:
		m.answered("cgroup", "")
		m.answered("uncgroup", "")
		m.answered("prepare", "")
		m.answered("unprepare", "")
	case messages.Runtime:
		m.answered("read", "")
	case messages.Images:
		for _, c := range m.Containers {
			m.answered("image", c.Name)
		}
	}
}
