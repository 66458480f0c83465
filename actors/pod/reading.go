package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// planReading: the actor has just started and knows nothing. It waits for its parent's wish, for the CRI's word
// and, where there are containers with probes, for the prober's, and derives everything from these. Leads to Preparing, Terminating.
func (m *Machine) planReading(now time.Time) Phase {
	if m.wish == nil && m.due(now, "wish", "", m.set.Patience) {
		m.emit(Tell{messages.Pods, messages.GetWish{UID: m.uid}})
	}
	if !m.read && m.due(now, "read", "", m.set.Patience) {
		m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
	}
	switch {
	case m.wish == nil || !m.read:
		return Reading
	case m.wish.Final == nil && m.unproved():
		return Reading
	}
	m.seedProbes()
	m.seedEnds()
	switch {
	case m.ending != nil:
		for _, c := range m.cons { // nobody starts these any more, nor tells of their hooks: what runs counts as started
			if f := c.newest(); f != nil {
				c.hooked = hooked{id: f.ID, done: true}
			}
		}
		return Terminating
	case m.wish.Final != nil: // that it is over is known; whether all of it was undone when the agent was killed is not
		m.verdict = &verdict{phase: m.wish.Final.Phase, reason: m.wish.Final.Reason, message: m.wish.Final.Message}
		return Terminating
	default:
		return Preparing
	}
}
