package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// planTerminating: nothing is started any more. All pre-stop hooks run at once. Containers are ended, sidecars after the others
// and in reverse order; then the sandbox is stopped. Leads to Cleaning.
func (m *Machine) planTerminating() Phase {
	if m.ends.IsZero() {
		m.ends = m.now.Add(m.Grace())
		for _, c := range m.Containers {
			if c.Actor {
				m.supervise(c) // nothing is restarted any more
			}
		}
	}
	m.halt()
	settled := m.settled()
	mains := m.stopMains()
	if m.stopSidecars(mains || !settled) || !settled {
		return Terminating
	}
	next := Cleaning
	for _, s := range m.Sandboxes.All {
		if !s.Stopped {
			next = Terminating
			m.stopSandbox(s.ID)
		}
	}
	return next
}

// halt ends what was on its way to start. Starts that are under way are awaited by reading the pod again: that
// reading begins when they have ended.
func (m *Machine) halt() {
	underWay := m.asking("sandbox", "")
	m.answered("sandbox", "")
	forget := false
	for _, c := range m.Containers {
		forget = forget || m.asking("image", c.Name)
		m.answered("image", c.Name)
		underWay = underWay || !c.Unread.IsZero() || c.Stage() == messages.StageStarting
		c.Unread = time.Time{}
		if c.Stage() == messages.StageStarting {
			c.Enter(messages.StageIdle)
		}
		m.answered("spawn", c.Name)
		m.answered("run", c.Name)
	}
	if forget {
		m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}})
	}
	if underWay {
		m.readAgain()
	}
}

// readAgain has the pod read, which begins when starts that are under way have ended.
func (m *Machine) readAgain() {
	m.settle = m.now
	m.answered("read", "")
}

// settled says that this has been done.
func (m *Machine) settled() bool {
	if m.settle.IsZero() {
		return true
	}
	m.readPod()
	return false
}

// stopMains ends all containers but sidecars, side by side. It reports whether any still runs.
func (m *Machine) stopMains() bool {
	left := false
	for _, c := range m.Containers {
		if !c.Sidecar() && c.Alive() {
			left = true
			m.stopContainer(c, m.Grace(), m.endReason())
		}
	}
	return left
}

// leastGrace is what a sidecar has when those before it have used the pod's grace period up (KEP-753).
const leastGrace = 2 * time.Second

// stopSidecars stops sidecars one after another, in reverse order, within the rest of the pod's grace period. Their pre-stop
// hooks run from the beginning. After the grace period, sidecars no longer wait for one another (KEP-753). They still wait for
// the other containers, which the runtime kills at about that time, or later if it was away. others means that such a container
// remains, or may remain. The result reports whether any container remains.
func (m *Machine) stopSidecars(others bool) bool {
	left := others
	for _, c := range slices.Backward(m.Containers) {
		if !c.Sidecar() || !c.Alive() {
			continue
		}
		rest, begun := m.ends.Sub(m.now), c.Stage() == messages.StageStopping
		switch {
		case begun, !left, !others && rest <= 0:
			m.stopContainer(c, max(rest, leastGrace), m.endReason())
		case rest > 0:
			m.askStop(c, messages.StageWaiting, rest, m.endReason())
		}
		left = true
	}
	return left
}

// graceOver reports whether the pod ends and has used its grace period up: no pre-stop hook is started or awaited any more.
func (m *Machine) graceOver() bool { return !m.ends.IsZero() && !m.now.Before(m.ends) }

func (m *Machine) endReason() messages.Cause {
	switch {
	case m.ending != nil:
		return messages.Cause{Text: m.ending.Reason}
	case m.Verdict != nil && m.Verdict.Reason != "":
		return messages.Cause{Text: m.Verdict.Reason}
	default:
		return messages.Cause{Text: "the pod has finished"}
	}
}
