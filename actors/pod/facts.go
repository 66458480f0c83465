package pod

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

func (m *Machine) takeFacts(f messages.PodFacts) {
	if f.ReadAt.Before(m.readAt) || f.ReadAt.Before(m.born) {
		return // overtaken by a later reading, or sent to an earlier life of this actor
	}
	first := !m.read
	m.answered("read", "")
	m.read, m.readAt = true, f.ReadAt
	if first && len(f.Sandboxes)+len(f.Containers) > 0 {
		m.probing.used = true // by an earlier life of this actor, perhaps
	}
	if !m.ends.IsZero() {
		// The grace period is paused while the runtime is away. Part of that time may precede it.
		m.ends = m.ends.Add(max(f.Away-m.away, 0))
		if whole := m.now.Add(m.Grace()); whole.Before(m.ends) {
			m.ends = whole
		}
	}
	m.away = f.Away
	if !m.settle.IsZero() && f.ReadAt.After(m.settle) {
		m.settle = time.Time{}
	}
	for _, id := range m.LearnSandboxes(f) {
		m.answered("stopSandbox", id)
	}
	for _, c := range f.Containers {
		m.takeFact(f.ReadAt, c, first)
	}
	for _, c := range m.Containers {
		if f.ReadAt.After(c.Unread) {
			c.Unread = time.Time{}
		}
	}
	m.Miss(f, m.now)
	m.renewProbes()
	m.renewVolumes()
}

// takeFact handles one container of a reading. An end is sent to its actor.
func (m *Machine) takeFact(at time.Time, f messages.ContainerFact, first bool) {
	c := m.Learn(f, at)
	if end := c.Exited(); end != nil && end.Attempt == c.Attempt && c.Stage() == messages.StageIdle {
		c.Retry = restarts.Retry{} // its start had not failed: the outcome was lost
	}
	if first && c.Is(f.ID) && f.Attempt > 0 {
		c.Backoff = backoff.Restarts{Policy: m.Set.BackOff, Step: m.Set.BackOffStep(f), Last: known.Anchor(f.CreatedAt, at)}
	}
}

// noteEnds logs the end of each container, once. Ends before this actor's first reading are not logged.
func (m *Machine) noteEnds() {
	for _, c := range m.Containers {
		for _, f := range slices.Backward(c.Attempts) {
			if f.State != messages.ContainerExited || f.Attempt < c.Ended {
				continue
			}
			c.Ended = f.Attempt + 1
			if m.phase != Reading {
				m.emit(ContainerEnd{f.ContainerFact})
				m.recordEnd(c, f.ContainerFact)
			}
		}
	}
}
