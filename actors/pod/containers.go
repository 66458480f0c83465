package pod

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/messages"
)

// ensure brings one container towards running, and reports whether it runs. It is its turn.
func (m *Machine) ensure(now time.Time, c *con) bool {
	f := c.newest()
	if f != nil && f.State == messages.ContainerUnknown && (c.stage == imaging || c.stage == up) {
		m.stopContainer(now, c, m.grace(), unknownState)
		return false
	}
	switch c.stage {
	case idle:
		return m.ensureIdle(now, c, f)
	case due:
		if !now.Before(c.at) {
			m.spawn(now, c)
		}
	case spawning:
		if m.due(now, "spawn", c.name, m.set.Patience) {
			m.emit(SpawnContainer{c.name})
			c.stage = imaging // should the word of its start be lost, it is told its wish all the same
			m.ensureImage(now, c)
		}
	case imaging:
		m.ensureImage(now, c)
	case starting:
		m.tellSeen(now, c)
		m.tellRun(now, c)
	case up:
		if f == nil || f.State == messages.ContainerCreated { // it was taken away, and what stands there never ran
			return m.ensureIdle(now, c, f)
		}
		if c.spec != nil && f != nil && f.State == messages.ContainerRunning && m.outdated(c, f) {
			c.replace = true
			m.stopContainer(now, c, m.grace(), "Container "+c.name+" definition changed, will be restarted")
			return false
		}
		if kind := c.unfit(); kind != "" && c.running() && c.seen == nil {
			m.endUnfit(now, c, kind)
			return false
		}
		m.tellSeen(now, c)
		return c.running()
	case stopping:
		if f == nil || f.State == messages.ContainerCreated { // it was taken away, and what stands there never ran
			m.answerEnd(c)
			return m.ensureIdle(now, c, f)
		}
		m.stopContainer(now, c, c.ends.grace, c.ends.why)
	}
	return false
}

// ensureIdle decides what a container needs that nothing is being done about.
func (m *Machine) ensureIdle(now time.Time, c *con, f *messages.ContainerFact) bool {
	switch {
	case c.spec == nil:
	case f == nil:
		m.startAt(now, c, now)
	case f.State == messages.ContainerExited:
		if !c.over(m.pod) || m.redo(c, f) {
			m.startAt(now, c, m.restartTime(now, c, f))
		}
	case f.State == messages.ContainerUnknown:
		m.stopContainer(now, c, m.grace(), unknownState)
	default: // created or running: adopted, or, where it was created in a sandbox that is gone, made again
		m.startAt(now, c, now)
	}
	return false
}

// redo says that an init container that succeeded must run again, since it did so in another sandbox.
func (m *Machine) redo(c *con, f *messages.ContainerFact) bool {
	current := m.box.current()
	return c.init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// restartTime is when a container that ended may start again. The end is told by the runtime's clock: where that, or ours,
// was set since, nobody waits longer than the back-off from now.
func (m *Machine) restartTime(now time.Time, c *con, f *messages.ContainerFact) time.Time {
	if c.replace {
		return now
	}
	return m.set.BackOff.after(now, c.backoff, f.FinishedAt)
}

// startAt has the container's actor there at the given time: spawned, or, when there is one, restarted.
func (m *Machine) startAt(now time.Time, c *con, at time.Time) {
	if at.After(now) {
		m.recordBackOff(c)
	}
	if c.actor {
		c.stage, c.at = spawning, at
		m.answered("run", c.name)
		m.asks[ask{"spawn", c.name}] = later(now, at).Add(m.set.Patience)
		m.emit(RestartContainer{c.name, max(at.Sub(now), 0)})
		return
	}
	if at.After(now) {
		c.stage, c.at = due, at
		return
	}
	m.spawn(now, c)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (m *Machine) spawn(now time.Time, c *con) {
	c.stage, c.actor, c.at = spawning, true, time.Time{}
	m.asks[ask{"spawn", c.name}] = now.Add(m.set.Patience)
	m.emit(SpawnContainer{c.name})
}

// changed says that the container was made from another spec. What it may use is part of that.
func (m *Machine) changed(c *con, f *messages.ContainerFact) bool {
	was := m.set.Resources(*f)
	return m.respecced(c, f) || (was != nil && !equality.Semantic.DeepEqual(*was, c.spec.Resources))
}

// respecced says so of all but what it may use.
func (m *Machine) respecced(c *con, f *messages.ContainerFact) bool {
	if fromAPI(m.pod) {
		return m.set.ChangedImage(c.spec, *f)
	}
	return m.set.Changed(c.spec, *f)
}

// outdated says that a container which runs has to be made anew. What a container of a manifest may use changes only so; a pod of the
// API server is resized in place or not at all (KEP-1287), and its containers run on with what they have.
func (m *Machine) outdated(c *con, f *messages.ContainerFact) bool {
	if fromAPI(m.pod) {
		return m.respecced(c, f)
	}
	return m.changed(c, f)
}
