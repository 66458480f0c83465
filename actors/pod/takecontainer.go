package pod

import (
	"maps"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// takeContainer notes what concerns one container.
func (m *Machine) takeContainer(now time.Time, msg any) {
	switch v := msg.(type) {
	case messages.ChildStarted:
		m.takeChild(now, v)
	case messages.ChildExited:
		m.takeExit(now, v)
	case messages.ContainerReported:
		m.takeReport(now, v)
	case messages.ImagePulled:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			m.answered("image", c.name)
			m.recordPulled(c, v)
			c.image.reason, c.image.awaits = nil, nil
			if v.Key.Volume == "" {
				c.image.ref = v.Ref
			} else if c.image.volumes = maps.Clone(c.image.volumes); c.image.volumes == nil {
				c.image.volumes = map[string]string{v.Key.Volume: v.Ref}
			} else {
				c.image.volumes[v.Key.Volume] = v.Ref
			}
		}
	case messages.ImageFailed:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			v.Reason.Container, v.Reason.Volume = c.name, v.Key.Volume
			m.recordImageFailed(c, v)
			c.image.reason, c.image.awaits = &v.Reason, nil // images goes on trying; the question stays open
		}
	case messages.ImageAwaited:
		if c := m.imageOf(v.Key, v.Image); c != nil {
			v.Reason.Container, v.Reason.Volume = c.name, v.Key.Volume
			m.recordPulling(c, v)
			c.image.awaits = &v.Reason
		}
	}
}

// imageOf is the container whose need of an image is answered; nil when it has another by now.
func (m *Machine) imageOf(key messages.ImageKey, image string) *container {
	c := m.container(key.Container)
	if c == nil || c.spec == nil || c.image.attempt != key.Attempt {
		return nil
	}
	if want, _, volume := m.nextImage(c); want != image || volume != key.Volume {
		return nil
	}
	return c
}

// takeChild: the actor of a container runs and knows nothing. One that was told something fell: it is told again, in another
// try. What its earlier life began may come yet.
func (m *Machine) takeChild(now time.Time, v messages.ChildStarted) {
	c := m.container(v.Name)
	if c == nil {
		return
	}
	c.actor = true
	m.answered("spawn", c.name)
	switch c.stage {
	case messages.StageStarting, messages.StageRunning:
		c.unread = now
		m.answerEnd(c)
	case messages.StageStopping:
		m.answered("stop", c.name)
		m.answered("end", c.name)
	case messages.StageIdle, messages.StageHooking, messages.StageWaiting:
	}
}

// takeExit: the actor of a container has ended with it. Whether it is started again the layer has judged by the strategy.
func (m *Machine) takeExit(now time.Time, v messages.ChildExited) {
	c := m.container(v.Name)
	end, ok := v.Result.(messages.ContainerEnded)
	if c == nil || !ok {
		return
	}
	c.actor = v.Verdict == messages.ExitRestarts
	m.answered("spawn", c.name)
	if c.actor {
		m.asks[ask{"spawn", c.name}] = later(now, v.RestartAt).Add(m.set.AnswerTimeout)
	}
	f := end.Fact
	m.notice(f.ID, now)
	c.learn(f)
	newest := c.newest()
	if newest == nil || newest.ID != f.ID || c.stage == messages.StageIdle ||
		(c.stage == messages.StageStarting && f.Attempt != c.attempt) {
		return // told once more; the next attempt is on its way
	}
	if newest.State == messages.ContainerExited || c.stage == messages.StageStopping {
		c.failed, c.tries = nil, 0
		m.answerEnd(c)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// takeReport takes what the actor of a container says of its run. While the post-start hook runs, it is asked on until that has
// ended.
func (m *Machine) takeReport(now time.Time, v messages.ContainerReported) {
	c := m.container(v.Name)
	if c == nil {
		return
	}
	if v.StopFailed != "" {
		if c.stage == messages.StageStopping {
			c.ends.failed = v.StopFailed
		}
		return
	}
	if v.Failed != nil {
		m.takeFailed(now, c, v)
		return
	}
	f := *v.Fact
	m.notice(f.ID, now)
	c.learn(f)
	if c.hooked.id != f.ID {
		c.hooked = hooked{id: f.ID}
	}
	c.hooked.done = c.hooked.done || v.Stage == messages.StageRunning
	if v.Stage == messages.StageHooking {
		c.hooked.failed = v.HookFailed
		return
	}
	m.answered("run", c.name)
	c.failed, c.tries = nil, 0
	if n := c.newest(); c.stage == messages.StageStarting && f.Attempt == c.attempt && n != nil && n.ID == f.ID {
		c.stage = messages.StageRunning
	}
}

func (m *Machine) takeFailed(now time.Time, c *container, v messages.ContainerReported) {
	if c.stage != messages.StageStarting || v.Generation != c.generation {
		return // told once more; the next try is on its way
	}
	m.answerEnd(c)
	if v.Fact != nil {
		m.notice(v.Fact.ID, now)
		c.learn(*v.Fact)
	}
	if v.Taken {
		c.free = c.attempt + 1
	}
	c.tries++
	r := *v.Failed
	r.RetryAt, r.Container, r.Tries = now.Add(retryDelay(c.tries)), c.name, c.tries
	c.failed = &r
	c.unread = now                         // without a word on it, it may run; and what it was told once more may start it yet
	c.image.ref, c.image.volumes = "", nil // they may be gone: they are asked for anew
	// What it needed may be gone without anyone having said so: the truth is read.
	m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
}
