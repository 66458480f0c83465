package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
)

func (m *Machine) takeWanted(w messages.PodWanted) {
	m.answered("desired", "")
	changed := m.desired == nil || m.desired.Pod != w.Pod
	if m.desired != nil && m.desired.Ending != nil && w.Ending == nil {
		w.Ending = m.desired.Ending // an end is never taken back
	}
	if m.desired != nil && m.desired.NoNetwork != nil && w.NoNetwork == nil {
		m.sandboxing.retry.At = time.Time{} // what failed for want of a network is tried at once
	}
	if m.ending == nil && w.Ending != nil {
		m.answered("unmount", "") // from now on it is to be removed, too
		m.cleaned.volumes = false
	}
	first := m.desired == nil
	m.desired, m.ending = &w, w.Ending
	if sooner := m.now.Add(m.grace()); (m.ending != nil || w.Fail != nil) && !m.ends.IsZero() && sooner.Before(m.ends) {
		m.ends = sooner // each container gets it with its stop
	}
	if !changed {
		m.toldAt = time.Time{} // the parent has not seen the status
		return
	}
	was := m.pod
	m.pod = w.Pod
	m.sandboxes.hostNet = w.Pod.Spec.HostNetwork
	m.matchSpec()
	for _, c := range m.containers {
		m.respec(c)
	}
	m.volumes.mounted = false // the volumes that the new spec names are asked for; those that are there are found
	m.answered("mount", "")
	if first {
		m.seed()
	} else {
		m.begins(was)
	}
	if m.started.IsZero() {
		m.started = m.now
	}
}

// respec has a container whose start is being waited for start from its new spec, at once.
func (m *Machine) respec(c *container) {
	c.noImage()
	c.retry = restarts.Retry{}
	m.answered("image", c.name)
	if c.actor {
		m.supervise(c) // its policy may have changed, too
	}
	f := c.exited()
	if c.spec == nil || f == nil || c.stage != messages.StageIdle || !m.live() || c.over(m.pod) || !m.outdated(c, f) {
		return
	}
	m.startAnew(c)
}

// startAnew has a container that has ended started at once: its back-off starts anew.
func (m *Machine) startAnew(c *container) {
	c.replace = true
	if c.actor && m.asking("spawn", c.name) {
		m.restartActor(c)
	}
}

func (m *Machine) takeService(service messages.Address) {
	switch service {
	case messages.Volumes:
		m.volumes.forgotten = true
		m.answered("mount", "")
		m.answered("unmount", "")
	case messages.Prober:
		if m.probing.sent != nil {
			m.probing.sent = nil
			m.answered("probes", "")
		}
	case messages.Resources:
		m.answered("cgroup", "")
		m.answered("uncgroup", "")
	case messages.Runtime:
		m.answered("read", "")
	case messages.Images:
		for _, c := range m.containers {
			m.answered("image", c.name)
		}
	}
}

// seed takes over what is known of the pod from before this machine, so that its status goes on where it was.
func (m *Machine) seed() {
	if last := m.desired.Last; last != nil {
		if last.StartTime != nil && m.started.IsZero() {
			m.started = last.StartTime.Time
		}
		m.seedAttempts(last)
	}
}

// settleEnd gives a pod of which nothing runs any more what its last status lacks. A pod of the API server that was asked to end
// gets its final phase, too: whoever waits for its end goes by it. A pod of a manifest keeps its phase, as with the kubelet.
func (m *Machine) settleEnd(s *v1.PodStatus) {
	if m.phase != Cleaning && m.phase != Finished {
		return
	}
	finalstatus.EndContainers(&m.pod.Spec, s)
	if m.ending != nil && objectset.OfAPIServer(m.pod) && !finalstatus.Final(s.Phase) {
		s.Phase = finalstatus.Phase(s)
	}
}
