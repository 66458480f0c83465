package pod

import (
	"time"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/stoporder"
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// planTerminating: nothing starts any more. All pre-stop hooks run at once. Containers are ended, sidecars after the others in
// reverse order; then the sandbox is stopped, and the claims are released. Leads to Cleaning.
func (m *Machine) planTerminating() Phase {
	if m.ends.IsZero() {
		m.ends = m.now.Add(m.Grace())
	}
	m.halt()
	settled := m.settled()
	if m.stopContainers(!settled) || !settled {
		return Terminating
	}
	next := Cleaning
	for _, s := range m.Sandboxes.All {
		if !s.Stopped {
			next = Terminating
			m.stopSandbox(s.ID)
		}
	}
	if next == Cleaning && m.holdsClaims() {
		m.ask("unprepare", "", messages.Resources, messages.ReleaseClaims{UID: m.uid})
		return Terminating
	}
	return next
}

// holdsClaims reports whether the pod may use ResourceClaims. As with the kubelet, it is not over until they are unprepared:
// others get the devices then.
func (m *Machine) holdsClaims() bool { return podspec.HasClaims(m.Pod) && !m.claims.released }

// halt cancels pending starts. For starts in progress it reads the pod again: that reading begins after they have ended.
func (m *Machine) halt() {
	underWay := m.asking("sandbox", "")
	m.answered("sandbox", "")
	m.answered("prepare", "")
	forget := false
	for _, c := range m.Containers {
		forget = forget || m.asking("image", c.Name)
		m.answered("image", c.Name)
		underWay = underWay || !c.Unread.IsZero() || c.Stage() == messages.StageStarting
		c.Unread = time.Time{}
		if c.Stage() == messages.StageStarting {
			c.Enter(messages.StageIdle)
		}
		m.answered("run", c.Name)
	}
	if forget {
		m.emit(Tell{messages.Images, messages.ForgetImages{UID: m.uid}})
	}
	if underWay {
		m.readAgain()
	}
}

// readAgain requests a reading that begins after the starts in progress have ended.
func (m *Machine) readAgain() {
	m.settle = m.now
	m.answered("read", "")
}

// settled reports whether that reading is complete.
func (m *Machine) settled() bool {
	if m.settle.IsZero() {
		return true
	}
	m.readPod()
	return false
}

// stopContainers stops the containers in their order. others means that an unknown container may run. It reports whether any
// known container still runs.
func (m *Machine) stopContainers(others bool) bool {
	var alive []*known.Container
	var list []stoporder.Container
	for _, c := range m.Containers {
		if c.Alive() {
			alive = append(alive, c)
			list = append(list, stoporder.Container{Sidecar: c.Sidecar(), Begun: c.Stage() == messages.StageStopping})
		}
	}
	for _, s := range stoporder.Next(list, m.Grace(), m.ends.Sub(m.now), others) {
		stage := messages.StageStopping
		if s.HookOnly {
			stage = messages.StageWaiting
		}
		m.askStop(alive[s.Index], stage, s.Grace, m.endReason())
	}
	return len(alive) > 0
}

// graceOver reports whether the pod ends and its grace period is over: no pre-stop hook is started or awaited any more.
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
