package pod

import (
	"cmp"
	"time"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// stopContainer has a container ended, through its actor.
func (m *Machine) stopContainer(now time.Time, c *container, grace time.Duration, why string) {
	m.askStop(now, c, grace, why, false)
}

// askStop has a container ended or, with hookOnly, its pre-stop hook run until its turn to end has come.
func (m *Machine) askStop(now time.Time, c *container, grace time.Duration, why string, hookOnly bool) {
	if c.stage != messages.StageStopping || c.ends.hookOnly != hookOnly {
		c.stage = messages.StageStopping
		c.ends.grace, c.ends.why, c.ends.until, c.ends.hookOnly, c.ends.failed = grace, why, now.Add(grace), hookOnly, ""
		m.answered("run", c.name)
		m.answered("stop", c.name)
	}
	if until := now.Add(grace); until.Before(c.ends.until.Add(-cri.GraceSlack)) { // it was given less time since
		c.ends.grace, c.ends.until = grace, until
		m.answered("stop", c.name)
	}
	again := m.asking("stop", c.name)
	if !m.due(now, "stop", c.name, m.set.AnswerTimeout) {
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
		msg.Fact = *f
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

// alive says that there is a process to end, as far as is known.
func (c *container) alive() bool {
	f := c.newest()
	return f != nil && (f.State == messages.ContainerRunning || f.State == messages.ContainerUnknown)
}

func (m *Machine) drop(c *container) {
	c.actor = false
	m.answerEnd(c)
	m.answered("spawn", c.name)
	m.emit(DropContainer{c.name})
}
