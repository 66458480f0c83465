package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

func (m *Machine) takeWish(now time.Time, w messages.PodWanted) {
	m.answered("wish", "")
	changed := m.pod != w.Pod
	if m.wish != nil && m.wish.Ending != nil && w.Ending == nil {
		w.Ending = m.wish.Ending // an end is never taken back
	}
	if m.wish != nil && m.wish.NoNetwork != nil && w.NoNetwork == nil {
		m.box.retry = time.Time{} // what failed for want of a network is tried at once
	}
	if m.ending == nil && w.Ending != nil {
		m.answered("unmount", "") // from now on it is to be removed, too
		m.cleaned.volumes = false
	}
	first := m.wish == nil
	m.wish, m.ending = &w, w.Ending
	if sooner := now.Add(m.grace()); m.ending != nil && !m.ends.IsZero() && sooner.Before(m.ends) {
		m.ends = sooner // the containers are told when their turn comes
	}
	if !changed {
		m.told = time.Time{} // it is told again since no status has shown that it was taken
		return
	}
	m.pod = w.Pod
	m.box.hostNet = w.Pod.Spec.HostNetwork
	m.book()
	for _, c := range m.cons {
		m.respec(c)
	}
	m.volumes.mounted = false // the volumes that the new spec names are asked for; those that are there are found
	m.answered("mount", "")
	m.cgroup.ready = false // so is the group that its requests and limits now ask for
	m.answered("cgroup", "")
	if first {
		m.seed()
	}
	if m.started.IsZero() {
		m.started = now
	}
}

// respec has a container whose start is being waited for start from its new spec, at once.
func (m *Machine) respec(c *con) {
	c.image.ref, c.image.reason, c.image.awaits, c.failed, c.tries = "", nil, nil, nil, 0
	m.answered("image", c.name)
	f := c.exited()
	if c.spec == nil || f == nil || !m.changed(c, f) {
		return
	}
	if c.stage == due || c.stage == spawning {
		c.stage, c.at, c.replace = idle, time.Time{}, true
	}
}

func (m *Machine) takeService(service messages.Address) {
	switch service {
	case messages.Volumes:
		m.volumes.forgotten = true
		m.answered("mount", "")
		m.answered("unmount", "")
	case messages.Prober:
		if m.probing.told != nil {
			m.probing.told = nil
			m.answered("probes", "")
		}
	case messages.Resources:
		m.answered("cgroup", "")
		m.answered("uncgroup", "")
	case messages.Runtime:
		m.answered("read", "")
	case messages.Images:
		for _, c := range m.cons {
			m.answered("image", c.name)
		}
	}
}
