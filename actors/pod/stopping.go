package pod

import (
	"time"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// stopContainer has a container ended, through its actor.
func (m *Machine) stopContainer(now time.Time, c *con, grace time.Duration, why string) {
	if c.stage != stopping {
		c.stage = stopping
		c.ends.grace, c.ends.why, c.ends.until = grace, why, now.Add(grace)
		m.answered("run", c.name)
		m.answered("stop", c.name)
	}
	if until := now.Add(grace); until.Before(c.ends.until.Add(-cri.GraceSlack)) { // it was given less time since
		c.ends.grace, c.ends.until = grace, until
		m.answered("stop", c.name)
	}
	if !c.actor {
		c.actor = true
		m.emit(SpawnContainer{c.name})
	}
	if !m.due(now, "stop", c.name, m.set.Patience) {
		return
	}
	msg := messages.StopContainer{UID: m.uid, Name: c.name, Pod: m.pod, Spec: c.spec, IPs: m.ips(), Grace: grace, Reason: why, Order: m.wish.Order}
	if f := c.newest(); f != nil {
		msg.Fact = *f
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), msg})
}

// answerEnd notes that a container's end is known. Where it is the container's turn, the plan answers it, by
// restartPolicy.
func (m *Machine) answerEnd(c *con) {
	c.stage, c.seen = idle, nil
	m.answered("run", c.name)
	m.answered("stop", c.name)
	m.answered("observe", c.name)
}

// alive says that there is a process to end, as far as is known.
func (c *con) alive() bool {
	f := c.newest()
	return f != nil && (f.State == messages.ContainerRunning || f.State == messages.ContainerUnknown)
}

func (m *Machine) drop(c *con) {
	c.actor, c.stage, c.at = false, idle, time.Time{}
	m.answered("spawn", c.name)
	m.answered("run", c.name)
	m.answered("stop", c.name)
	m.emit(DropContainer{c.name})
}
