package pod

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/messages"
)

// ensure brings one container towards running, and reports whether it runs. It is its turn.
func (m *Machine) ensure(now time.Time, c *container) bool {
	f := c.newest()
	ran := f != nil && f.State != messages.ContainerCreated
	switch c.stage {
	case messages.StageIdle:
		m.start(now, c)
	case messages.StageStarting:
		if f := c.exited(); f != nil && f.Attempt == c.attempt {
			m.tellEnd(now, c)
		} else if c.image.ref != "" || m.wantImage(now, c) { // where its spec has changed since, the image is asked for anew
			m.tellRun(now, c)
		}
	case messages.StageRunning:
		switch {
		case !ran: // it was taken away, and what stands there never ran
			m.restartActor(now, c)
			m.start(now, c)
		case f.State == messages.ContainerExited:
			m.tellEnd(now, c)
		case f.State == messages.ContainerUnknown:
			m.stopContainer(now, c, m.grace(), unknownState)
		case c.spec != nil && m.outdated(c, f):
			c.replace = true
			m.stopContainer(now, c, m.grace(), "Container "+c.name+" definition changed, will be restarted")
		case m.unsettled(c) && m.restartsFor(c) && m.grouped():
			c.replace = true
			m.stopContainer(now, c, m.grace(), "Container "+c.name+" resize requires restart, will be restarted")
		case c.renew == f.ID:
			c.replace = true
			m.stopContainer(now, c, m.grace(), "Container "+c.name+" restart was asked for, will be restarted")
		case c.unfit() != "":
			m.endUnfit(now, c, c.unfit())
		default:
			return true
		}
	case messages.StageStopping:
		switch {
		case !ran:
			m.restartActor(now, c)
			m.start(now, c)
		case f.State == messages.ContainerExited:
			m.tellEnd(now, c)
		default:
			m.stopContainer(now, c, c.ends.grace, c.ends.why)
		}
	case messages.StageHooking, messages.StageWaiting: // its actor's alone
	}
	return false
}

// redo says that an init container that succeeded must run again, since it did so in another sandbox.
func (m *Machine) redo(c *container, f *messages.ContainerFact) bool {
	current := m.sandboxes.current()
	return c.init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// restartTime is when a container that ended may start again. The end has the runtime's time: where that clock, or ours,
// was set since, nobody waits longer than the back-off from now.
func (m *Machine) restartTime(now time.Time, c *container, f *messages.ContainerFact) time.Time {
	if c.replace || c.earlier {
		return now
	}
	return m.set.BackOff.after(now, c.backoff, f.FinishedAt)
}

// restartActor has the container's actor started anew: its run is over, and it cannot know.
func (m *Machine) restartActor(now time.Time, c *container) {
	m.answerEnd(c)
	m.asks[ask{"spawn", c.name}] = now.Add(m.set.AnswerTimeout)
	m.emit(RestartContainer{c.name})
}

// spawn has the container's actor there, with the strategy by which its exits are answered. It reports whether the actor can
// be told what to do: it is there, or the word of its start is overdue.
func (m *Machine) spawn(now time.Time, c *container) bool {
	again := c.actor
	if !m.due(now, "spawn", c.name, m.set.AnswerTimeout) {
		return false
	}
	m.supervise(c)
	if again {
		m.answered("spawn", c.name)
	}
	return again
}

// supervise tells the layer how the exits of a container's actor are answered, and has it started where it is not there.
func (m *Machine) supervise(c *container) {
	c.actor = true
	m.emit(SpawnContainer{Name: c.name, Strategy: m.strategy(c)})
}

// changed says that the container was made from another spec. What it may use is part of that.
func (m *Machine) changed(c *container, f *messages.ContainerFact) bool {
	was := m.set.Resources(m.pod, *f)
	return m.respecced(c, f) || (was != nil && !equality.Semantic.DeepEqual(*was, m.gets(c)))
}

// respecced says so of all but what it may use.
func (m *Machine) respecced(c *container, f *messages.ContainerFact) bool {
	if fromAPI(m.pod) {
		return m.set.ChangedImage(c.spec, *f)
	}
	return m.set.Changed(c.spec, *f)
}

// outdated says that a container which runs has to be made anew. What a container of a manifest may use changes only so; those
// of the API server's are resized (KEP-1287).
func (m *Machine) outdated(c *container, f *messages.ContainerFact) bool {
	if c.ephemeral {
		return false
	}
	if fromAPI(m.pod) {
		return m.respecced(c, f)
	}
	return m.changed(c, f)
}
