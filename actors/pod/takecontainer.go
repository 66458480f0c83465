package pod

import (
	"time"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/messages"
)

// takeContainer notes what concerns one container.
func (m *Machine) takeContainer(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.ChildStarted:
		m.takeChild(now, v)
	case messages.ImagePulled:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			m.answered("image", c.name)
			m.recordPulled(c, v)
			c.image.ref, c.image.reason, c.image.awaits = v.Ref, nil, nil
		}
	case messages.ImageFailed:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			m.recordImageFailed(c, v)
			c.image.reason, c.image.awaits = &v.Reason, nil // images goes on trying; the question stays open
		}
	case messages.ImageAwaited:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			m.recordPulling(c, v)
			c.image.awaits = &v.Reason
		}
	case messages.ContainerStarted:
		if c := m.con(v.Fact.Name); c != nil {
			m.notice(v.Fact.ID, now)
			m.takeStarted(c, v.Fact, v.Hooking)
		}
	case messages.ContainerEnded:
		if c := m.con(v.Fact.Name); c != nil {
			m.notice(v.Fact.ID, now)
			m.takeEnded(c, v.Fact)
		}
	case messages.ContainerFailed:
		if c := m.con(v.Name); c != nil {
			m.takeFailed(now, c, v)
		}
	}
}

// imageOf is the container whose need of an image is answered; nil when it has another by now.
func (m *Machine) imageOf(key messages.ImageKey, image string) *con {
	c := m.con(key.Container)
	if c == nil || c.spec == nil || c.image.attempt != key.Attempt || c.spec.Image != image {
		return nil
	}
	return c
}

// takeChild: the actor of a container runs and knows nothing.
func (m *Machine) takeChild(now time.Time, v messages.ChildStarted) {
	c := m.con(v.Name)
	if c == nil {
		return
	}
	m.answered("spawn", c.name)
	switch c.stage {
	case spawning:
		c.stage, c.at = imaging, time.Time{}
	case starting, up:
		// It fell and knows nothing: it is told its wish again, with what stands for it. That is another try: what its
		// earlier life said of the one before is not taken for its answer.
		m.answered("run", c.name)
		c.told = ""
		f := c.newest()
		switch {
		case f != nil && f.Attempt != c.attempt, m.standing(c) == nil && c.image.ref == "":
			if c.stage == starting {
				c.loose = now
			}
			c.stage = imaging // another attempt, or another image since: it is asked for first
		default:
			c.stage = starting
			c.loose = now // an answer that its earlier life gave may come yet, and is not the last one
		}
	case stopping:
		m.answered("stop", c.name)
	case idle, due, imaging:
	}
}

// takeStarted: the container runs. While its post-start hook does, it is asked on until that has ended.
func (m *Machine) takeStarted(c *con, f messages.ContainerFact, hooking bool) {
	c.learn(f)
	if c.hooked.id != f.ID {
		c.hooked = hooked{id: f.ID}
	}
	c.hooked.done = c.hooked.done || !hooking
	if hooking {
		return
	}
	m.answered("run", c.name)
	c.failed, c.tries = nil, 0
	n := c.newest()
	if c.stage != starting || f.Attempt != c.attempt || n == nil || n.ID != f.ID {
		return
	}
	if n.State == messages.ContainerExited {
		m.answerEnd(c) // its end was read before the word of its start came
		return
	}
	c.stage = up
}

func (m *Machine) takeEnded(c *con, f messages.ContainerFact) {
	c.learn(f)
	newest := c.newest()
	if newest == nil || newest.ID != f.ID {
		return
	}
	if newest.State == messages.ContainerCreated && c.stage == stopping {
		m.answerEnd(c) // it never ran: there was nothing to end
		return
	}
	if newest.State != messages.ContainerExited {
		return
	}
	switch c.stage {
	case starting:
		if f.Attempt != c.attempt {
			return // told once more; the next attempt is on its way
		}
	case up, stopping:
	case idle, due, spawning, imaging:
		return
	}
	c.failed, c.tries = nil, 0
	m.answerEnd(c)
}

func (m *Machine) takeFailed(now time.Time, c *con, v messages.ContainerFailed) {
	if c.stage != starting || v.Attempt != c.attempt || v.Turn != c.turn {
		return // told once more; the next try is on its way
	}
	m.answered("run", c.name)
	if v.Fact != nil {
		m.notice(v.Fact.ID, now)
	}
	if v.Fact != nil && v.Fact.State == messages.ContainerExited && !facts.CutOff(*v.Fact) {
		c.learn(*v.Fact)
		m.answerEnd(c)
		return
	}
	if v.Fact != nil {
		c.learn(*v.Fact)
	}
	if v.Taken {
		c.free = v.Attempt + 1
	}
	c.tries++
	r := v.Reason
	r.RetryAt = now.Add(retryDelay(c.tries))
	c.failed = &r
	c.stage = imaging
	c.loose = now    // without a word on it, it may run; and what it was told once more may start it yet
	c.image.ref = "" // it may be gone: it is asked for anew
	// What it needed may be gone without anyone having said so: the truth is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}
