package pod

import (
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// planReading: the actor has just started and knows nothing. It waits for the desired pod, for a reading of the CRI and, if there
// are containers with probes, for the prober, and derives everything from these. Leads to Preparing, Terminating.
func (m *Machine) planReading() Phase {
	if m.Wanted == nil {
		m.ask("desired", "", messages.Pods, messages.GetDesired{UID: m.uid})
	}
	if !m.read {
		m.readPod()
	}
	if m.Wanted == nil || !m.read || m.Wanted.Final == nil && m.probeResultsUnknown() {
		return Reading
	}
	m.MatchSpec()
	m.takeResources()
	m.SeedAttempts(m.now)
	switch {
	case m.ending != nil:
		for _, c := range m.Containers { // no new start, and no report of hooks: running ones count as started
			if f := c.Newest(); f != nil {
				f.Hook = known.Hook{Known: true, Done: true}
			}
		}
		return Terminating
	case m.Wanted.Final != nil: // the pod is known to be over, but an agent that was killed may have left some of it
		final := m.Wanted.Final
		m.Verdict = &known.Verdict{Phase: final.Phase, Reason: final.Reason, Message: final.Message}
		return Terminating
	default:
		return Preparing
	}
}
