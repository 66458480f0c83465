package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// planTerminating: nothing is started any more. Containers are ended, sidecars after the others and in reverse order;
// then the sandbox is stopped. Leads to Cleaning.
func (m *Machine) planTerminating(now time.Time) Phase {
	if m.ends.IsZero() {
		m.ends = now.Add(m.grace())
	}
	m.halt(now)
	settled := m.settled(now)
	if m.stopMains(now) || !settled || m.stopSidecars(now) {
		return Terminating
	}
	waiting := false
	for _, s := range m.box.all {
		if !m.box.stopped[s.ID] {
			waiting = true
			if !now.Before(m.box.retry) {
				m.stopSandbox(now, s.ID)
			}
		}
	}
	if waiting {
		return Terminating
	}
	return Cleaning
}

// halt ends what was on its way to start. Starts that are under way are awaited by reading the pod again: that
// reading begins when they have ended.
func (m *Machine) halt(now time.Time) {
	underWay := m.asking("sandbox", "")
	m.answered("sandbox", "")
	forget := false
	for _, c := range m.cons {
		forget = forget || m.asking("image", c.name)
		m.answered("image", c.name)
		if !c.loose.IsZero() {
			underWay, c.loose = true, time.Time{}
		}
		switch c.stage {
		case starting:
			underWay = true
			c.stage = idle
		case due, spawning, imaging:
			c.stage, c.at = idle, time.Time{}
		case idle, up, stopping:
		}
		m.answered("spawn", c.name)
		m.answered("run", c.name)
	}
	if forget {
		m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}})
	}
	if underWay {
		m.settle = now
		m.answered("read", "")
	}
}

func (m *Machine) settled(now time.Time) bool {
	if m.settle.IsZero() {
		return true
	}
	if m.due(now, "read", "", m.set.Patience) {
		m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
	}
	return false
}

// stopMains ends all containers but sidecars, side by side. It reports whether any still runs.
func (m *Machine) stopMains(now time.Time) bool {
	left := false
	for _, c := range m.cons {
		if !c.sidecar() && c.alive() {
			left = true
			m.stopContainer(now, c, m.grace(), m.endReason())
		}
	}
	return left
}

// leastGrace is what a sidecar has when those before it have used the pod's grace period up (KEP-753).
const leastGrace = 2 * time.Second

// stopSidecars ends sidecars one after another, the last first, within what is left of the pod's grace period (KEP-753).
func (m *Machine) stopSidecars(now time.Time) bool {
	for i := len(m.cons) - 1; i >= 0; i-- {
		if c := m.cons[i]; c.sidecar() && c.alive() {
			m.stopContainer(now, c, max(m.ends.Sub(now), leastGrace), m.endReason())
			return true
		}
	}
	return false
}

func (m *Machine) endReason() string {
	switch {
	case m.ending != nil:
		return m.ending.Reason
	case m.verdict != nil && m.verdict.reason != "":
		return m.verdict.reason
	default:
		return "the pod has finished"
	}
}
