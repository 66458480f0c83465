package pod

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// ensureImage gets the image for the next attempt, then has the container run. After a failure there is a pause first,
// whatever is left of it.
func (m *Machine) ensureImage(now time.Time, c *con) {
	stands := m.standing(c)
	if stands == nil && !m.wantImage(now, c) {
		return
	}
	if c.failed != nil && now.Before(c.failed.RetryAt) {
		return
	}
	if stands != nil {
		c.attempt = stands.Attempt
		m.run(now, c)
		return
	}
	f := c.newest()
	next := c.nextAttempt()
	if next != c.attempt && !c.loose.IsZero() {
		if m.due(now, "read", "", m.set.Patience) {
			m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
		}
		return
	}
	switch {
	case c.replace:
		c.backoff = backoff{}
	case next == c.attempt: // told before, to an actor that fell: no other restart
	case f != nil && f.State == messages.ContainerExited:
		c.backoff = m.set.BackOff.next(c.backoff, f.FinishedAt, now)
	}
	c.attempt, c.replace = next, false
	m.run(now, c)
}

// standing is the container that was made for the present attempt and can be adopted. One that never ran is made again where
// the spec has changed.
func (m *Machine) standing(c *con) *messages.ContainerFact {
	f, current := c.newest(), m.box.current()
	if f == nil || current == nil || f.SandboxID != current.ID {
		return nil
	}
	if f.State == messages.ContainerRunning || (f.State == messages.ContainerCreated && c.spec != nil && !m.changed(c, f)) {
		return f
	}
	return nil
}

// nextAttempt is the number of the container that is to be made next.
func (c *con) nextAttempt() uint32 {
	if f := c.newest(); f != nil {
		return max(f.Attempt+1, c.free)
	}
	return c.free
}

// wantImage reports whether the image for the container's next start is there, and asks for it otherwise.
func (m *Machine) wantImage(now time.Time, c *con) bool {
	if m.standing(c) != nil {
		return true
	}
	attempt := c.nextAttempt()
	if c.image.attempt == attempt && c.image.ref != "" {
		return true
	}
	if c.image.attempt != attempt {
		c.image.attempt, c.image.ref, c.image.reason, c.image.awaits = attempt, "", nil, nil
		m.answered("image", c.name)
	}
	if m.due(now, "image", c.name, m.set.Patience) {
		m.emit(Tell{messages.Images, messages.PullImage{
			Key: messages.ImageKey{UID: m.uid, Container: c.name, Attempt: attempt}, Image: c.spec.Image,
			Policy: c.spec.ImagePullPolicy, Pod: m.pod, Priority: m.wish.Order,
		}})
	}
	return false
}

// run tells the container's actor its wish.
func (m *Machine) run(now time.Time, c *con) {
	c.stage, c.told, c.loose = starting, "", time.Time{}
	m.answered("spawn", c.name)
	m.answered("run", c.name)
	m.tellRun(now, c)
}

func (m *Machine) tellRun(now time.Time, c *con) {
	current := m.box.current()
	if current == nil || !m.due(now, "run", c.name, m.set.Patience) {
		return
	}
	if c.told != current.ID { // another try; its turn is larger than any of an earlier life, too
		c.told, c.turn = current.ID, max(c.turn+1, uint64(now.UnixNano()))
	}
	w := messages.RunContainer{
		Pod: m.pod, Container: c.spec, Attempt: c.attempt, ImageRef: c.image.ref, Volumes: m.volumes.paths,
		Sandbox: messages.Sandbox{ID: current.ID, Attempt: current.Attempt, IPs: current.IPs, CgroupParent: m.cgroup.parent, Handler: current.Handler},
		BackOff: c.backoff.step, Order: m.wish.Order, Turn: c.turn,
	}
	if f := m.standing(c); f != nil && f.Attempt == c.attempt {
		adopt := *f
		w.Adopt = &adopt
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}
