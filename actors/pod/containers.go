package pod

import (
	"cmp"
	"time"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// ensure advances a container towards running, and reports whether it runs. The caller respects the order of containers.
func (m *Machine) ensure(c *known.Container) bool {
	switch stage, f := c.Stage(), c.Newest(); {
	case stage == messages.StageIdle:
		m.start(c)
	case stage == messages.StageStarting:
		if f := c.Exited(); f != nil && f.Attempt == c.Attempt {
			m.sendEnd(c)
		} else if c.Image.Ref != "" || m.ensureImage(c) { // after a change of the spec the image is requested again
			m.sendRun(c)
		}
	case f == nil || f.State == messages.ContainerCreated: // its container was removed, and the one there never ran
		m.drop(c) // its actor's run is over, and the actor cannot know
		m.start(c)
	case f.State == messages.ContainerExited:
		m.sendEnd(c)
	case c.Ending():
		m.stopContainer(c, c.Ends.Grace, c.Ends.Why)
	default:
		return m.keep(c, f)
	}
	return false
}

// keep ends a running container that must not continue as it is, and reports whether it is left running.
func (m *Machine) keep(c *known.Container, f *known.Attempt) bool {
	var why messages.CauseCode
	switch {
	case f.State == messages.ContainerUnknown:
		m.stopContainer(c, m.Grace(), messages.Cause{Code: messages.CauseStateUnknown})
		return false
	case c.Spec != nil && m.Outdated(c, f):
		why = messages.CauseOutdated
	case m.Unsettled(c) && m.RestartsFor(c) && m.grouped():
		why = messages.CauseResized
	case f.Renew:
		why = messages.CauseRenewed
	case c.Unfit() != "":
		m.endAfterFailedProbe(c, c.Unfit())
		return false
	default:
		return true
	}
	c.Replace = true
	m.stopContainer(c, m.Grace(), messages.Cause{Code: why})
	return false
}

func (m *Machine) stopContainer(c *known.Container, grace time.Duration, why messages.Cause) {
	m.askStop(c, messages.StageStopping, grace, why)
}

// askStop ends a container or, with the stage waiting, runs its pre-stop hook until its turn to end.
func (m *Machine) askStop(c *known.Container, stage messages.ContainerStage, grace time.Duration, why messages.Cause) {
	if c.Stage() != stage {
		c.Enter(stage)
		c.Ends = known.Termination{Grace: grace, Until: m.now.Add(grace), Why: why}
		m.answered("run", c.Name)
		m.answered("stop", c.Name)
	}
	if until := m.now.Add(grace); until.Before(c.Ends.Until.Add(-cri.GraceSlack)) { // its grace period was shortened
		c.Ends.Grace, c.Ends.Until = grace, until
		m.answered("stop", c.Name)
	}
	if !m.due("stop", c.Name, m.Set.AnswerTimeout) {
		return
	}
	msg := messages.StopContainer{
		UID: m.uid, Name: c.Name, Pod: m.Pod, Spec: c.Spec, IPs: m.IPs(), Grace: grace, Cause: why, Order: m.Wanted.Order,
		HookOnly: stage == messages.StageWaiting, NoHook: c.Earlier && m.live() || m.graceOver(),
		AtOnce: m.Wanted.Fail != nil && m.Wanted.Fail.Reason == messages.ReasonTerminated,
	}
	if f := c.Newest(); f != nil {
		msg.Fact = f.ContainerFact
	}
	if m.Set.Events && m.Pod != nil {
		why := c.Killing()
		if m.live() {
			why = cmp.Or(c.Unhealthy(), why)
		}
		msg.Explained = m.sentence(*why)
	}
	m.order(c, msg)
}

// answerEnd records that the actor has no more orders for a container. The plan decides the next step.
func (m *Machine) answerEnd(c *known.Container) {
	c.Enter(messages.StageIdle)
	for _, what := range []string{"run", "stop", "end"} {
		m.answered(what, c.Name)
	}
}

func (m *Machine) drop(c *known.Container) {
	c.Actor, c.Sent = false, nil
	m.answerEnd(c)
	m.emit(DropContainer{c.Name})
}
