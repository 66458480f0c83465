package pod

import (
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// takeFacts notes the CRI's word on the pod.
func (m *Machine) takeFacts(now time.Time, f messages.PodFacts) {
	if f.ReadAt.Before(m.readAt) || f.ReadAt.Before(m.born) {
		return // overtaken by a later reading, or on its way to an earlier life of this actor
	}
	first := !m.read
	m.answered("read", "")
	m.read, m.readAt = true, f.ReadAt
	if !m.settle.IsZero() && f.ReadAt.After(m.settle) {
		m.settle = time.Time{}
	}
	m.takeSandboxes(f)
	for i := range f.Containers {
		m.takeFact(f.ReadAt, f.Containers[i], first)
	}
	for _, c := range m.containers {
		if f.ReadAt.After(c.unread) {
			c.unread = time.Time{}
		}
	}
	m.takeMissing(now, f)
	m.forget()
	for i := range f.Sandboxes {
		m.takeStart(&f.Sandboxes[i])
	}
}

// takeStart finds the pod's start time. The first sandbox was made with it; every later one carries it, too. A kubelet notes
// none: then the oldest sandbox that is left has to do.
func (m *Machine) takeStart(s *messages.SandboxFact) {
	at := s.PodStarted
	if at.IsZero() {
		at = s.CreatedAt
	}
	if m.started.IsZero() || at.Before(m.started) {
		m.started = at
	}
}

func (m *Machine) takeSandboxes(f messages.PodFacts) {
	listed := map[string]bool{}
	for _, s := range f.Sandboxes {
		listed[s.ID] = true
		m.notice(s.ID, f.ReadAt)
		s.IPs = m.byFamily(s.IPs)
		m.sandboxes.learn(s)
	}
	m.sandboxes.all = slices.DeleteFunc(m.sandboxes.all, func(s messages.SandboxFact) bool {
		return !listed[s.ID] && m.known[s.ID].Before(f.ReadAt)
	})
}

// takeFact takes one container of a reading, with the time of our own clock. Its actor hears of its end.
func (m *Machine) takeFact(at time.Time, f messages.ContainerFact, first bool) {
	c := m.container(f.Name)
	if c == nil {
		c = &container{name: f.Name, stage: messages.StageIdle}
		m.containers = append(m.containers, c)
	}
	m.notice(f.ID, at)
	c.learn(f)
	if end := c.exited(); end != nil && end.Attempt == c.attempt && c.stage == messages.StageIdle {
		c.failed, c.tries = nil, 0 // its start had not failed: the outcome was lost
	}
	if n := c.newest(); first && n != nil && n.ID == f.ID && f.Attempt > 0 {
		c.backoff = backoff{step: m.set.BackOffStep(f), last: f.CreatedAt}
	}
}

// takeMissing notes containers that the CRI no longer knows: someone removed them.
func (m *Machine) takeMissing(now time.Time, f messages.PodFacts) {
	listed := map[string]bool{}
	for _, o := range f.Containers {
		listed[o.ID] = true
	}
	for _, c := range m.containers {
		n := c.newest()
		if n == nil || listed[n.ID] || n.State == messages.ContainerExited || !m.known[n.ID].Before(f.ReadAt) {
			continue
		}
		if n.State == messages.ContainerCreated {
			c.facts = c.facts[1:] // it never ran: it is as if it had never been
			continue
		}
		gone := *n
		gone.State, gone.ExitCode, gone.Reason = messages.ContainerExited, 137, messages.ReasonUnknown
		gone.Message, gone.FinishedAt = "the container was removed from the runtime by someone else", now
		c.learn(gone)
		if c.stage == messages.StageStarting {
			c.unread = now // what it was told once more, an actor that fell takes for the first time: that may make another
		}
	}
}

// notice notes that a sandbox or container was there at a time of our own clock.
func (m *Machine) notice(id string, at time.Time) {
	if _, ok := m.known[id]; !ok {
		m.known[id] = at
	}
}

// forget drops what is kept of sandboxes and containers that are not known any more.
func (m *Machine) forget() {
	there := map[string]bool{}
	for i := range m.sandboxes.all {
		there[m.sandboxes.all[i].ID] = true
	}
	for _, c := range m.containers {
		for i := range c.facts {
			there[c.facts[i].ID] = true
		}
	}
	maps.DeleteFunc(m.known, func(id string, _ time.Time) bool { return !there[id] })
	maps.DeleteFunc(m.sandboxes.stopped, func(id string, _ bool) bool { return !there[id] })
	maps.DeleteFunc(m.asks, func(k ask, _ time.Time) bool { return k.what == "stopSandbox" && !there[k.of] })
}
