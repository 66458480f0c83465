package pod

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// ensure brings one container towards running, and reports whether it runs. It is its turn.
func (m *Machine) ensure(c *container) bool {
	f, ordered := c.newest(), c.stage == messages.StageRunning || c.stage == messages.StageStopping
	switch {
	case c.stage == messages.StageIdle:
		m.start(c)
	case c.stage == messages.StageStarting:
		if f := c.exited(); f != nil && f.Attempt == c.attempt {
			m.tellEnd(c)
		} else if c.image.ref != "" || m.wantImage(c) { // where its spec has changed since, the image is asked for anew
			m.tellRun(c)
		}
	case ordered && (f == nil || f.State == messages.ContainerCreated): // it was taken away, and what stands there never ran
		m.restartActor(c)
		m.start(c)
	case ordered && f.State == messages.ContainerExited:
		m.tellEnd(c)
	case c.stage == messages.StageStopping:
		m.stopContainer(c, c.ends.grace, c.ends.why)
	case c.stage == messages.StageRunning:
		return m.keep(c, f)
	}
	return false
}

// keep has a container ended that runs and is not to run on as it is, and reports whether it is left running.
func (m *Machine) keep(c *container, f *attempt) bool {
	var why string
	switch {
	case f.State == messages.ContainerUnknown:
		m.stopContainer(c, m.grace(), unknownState)
		return false
	case c.spec != nil && m.outdated(c, f):
		why = "definition changed"
	case m.unsettled(c) && m.restartsFor(c) && m.grouped():
		why = "resize requires restart"
	case f.renew:
		why = "restart was asked for"
	case c.unfit() != "":
		m.endUnfit(c, c.unfit())
		return false
	default:
		return true
	}
	c.replace = true
	m.stopContainer(c, m.grace(), "Container "+c.name+" "+why+", will be restarted")
	return false
}

// redo says that an init container that succeeded must run again, since it did so in another sandbox.
func (m *Machine) redo(c *container, f *attempt) bool {
	current := m.sandboxes.current()
	return c.init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// restartTime is when a container that ended may start again. The end has the runtime's time: where that clock, or ours,
// was set since, nobody waits longer than the back-off from now.
func (m *Machine) restartTime(now time.Time, c *container, ended time.Time) time.Time {
	if c.replace || c.earlier {
		return now
	}
	return m.set.BackOff.After(now, c.backoff, ended)
}

// restartActor has the container's actor started anew: its run is over, and it cannot know.
func (m *Machine) restartActor(c *container) {
	m.answerEnd(c)
	m.asks[ask{"spawn", c.name}] = m.now.Add(m.set.AnswerTimeout)
	m.emit(RestartContainer{c.name})
}

// spawn has the container's actor there, with the strategy by which its exits are answered. It reports whether the actor can
// be told what to do: it is there, or the word of its start is overdue.
func (m *Machine) spawn(c *container) bool {
	again := c.actor
	if !m.due("spawn", c.name, m.set.AnswerTimeout) {
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
func (m *Machine) changed(c *container, f *attempt) bool {
	was := m.set.Resources(m.pod, f.ContainerFact)
	return m.respecced(c, f) || (was != nil && !equality.Semantic.DeepEqual(*was, resources.Allocated(m.pod, c.spec)))
}

// respecced says so of all but what it may use.
func (m *Machine) respecced(c *container, f *attempt) bool {
	if objectset.OfAPIServer(m.pod) {
		return m.set.ChangedImage(c.spec, f.ContainerFact)
	}
	return m.set.Changed(c.spec, f.ContainerFact)
}

// outdated says that a container which runs has to be made anew. What a container of a manifest may use changes only so; those
// of the API server's are resized (KEP-1287).
func (m *Machine) outdated(c *container, f *attempt) bool {
	if c.ephemeral {
		return false
	}
	if objectset.OfAPIServer(m.pod) {
		return m.respecced(c, f)
	}
	return m.changed(c, f)
}

func (m *Machine) stopContainer(c *container, grace time.Duration, why string) {
	m.askStop(c, grace, why, false)
}

// askStop has a container ended or, with hookOnly, its pre-stop hook run until its turn to end has come.
func (m *Machine) askStop(c *container, grace time.Duration, why string, hookOnly bool) {
	if c.stage != messages.StageStopping || c.ends.hookOnly != hookOnly {
		c.stage = messages.StageStopping
		c.ends.grace, c.ends.why, c.ends.until, c.ends.hookOnly, c.ends.failed = grace, why, m.now.Add(grace), hookOnly, ""
		m.answered("run", c.name)
		m.answered("stop", c.name)
	}
	if until := m.now.Add(grace); until.Before(c.ends.until.Add(-cri.GraceSlack)) { // it was given less time since
		c.ends.grace, c.ends.until = grace, until
		m.answered("stop", c.name)
	}
	again := m.asking("stop", c.name)
	if !m.due("stop", c.name, m.set.AnswerTimeout) {
		return
	}
	if again || !c.actor { // it may have ended, and the word of that may be lost
		m.supervise(c)
	}
	msg := messages.StopContainer{
		UID: m.uid, Name: c.name, Pod: m.pod, Spec: c.spec, IPs: m.ips(), Grace: grace, Reason: why, Order: m.desired.Order,
		HookOnly: hookOnly, NoHook: c.earlier && m.live(),
	}
	if f := c.newest(); f != nil {
		msg.Fact = f.ContainerFact
	}
	if m.set.Events && m.pod != nil {
		why := c.killing()
		if m.live() {
			why = cmp.Or(c.unhealthy(), why)
		}
		msg.Explained = m.sentence(*why)
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), msg})
}

// answerEnd notes that its actor has nothing more to do for a container. What follows is the plan's, when it is its turn.
func (m *Machine) answerEnd(c *container) {
	c.stage = messages.StageIdle
	for _, what := range []string{"run", "stop", "end"} {
		m.answered(what, c.name)
	}
}

func (m *Machine) drop(c *container) {
	c.actor = false
	m.answerEnd(c)
	m.answered("spawn", c.name)
	m.emit(DropContainer{c.name})
}
