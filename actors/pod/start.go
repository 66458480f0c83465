package pod

import (
	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/starts"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// starts returns the rules that decide whether a container may start.
func (m *Machine) starts() *starts.Pod {
	return &starts.Pod{
		State: &m.State, Now: m.now,
		Due: func(c *known.Container) bool { return m.phase == Running || m.phase != Preparing && c.Init },
	}
}

// start runs the container if nothing prevents it, and otherwise requests the missing part.
func (m *Machine) start(c *known.Container) {
	what, _ := m.starts().Blocker(c)
	switch what {
	case starts.Certainty:
		m.stopContainer(c, m.Grace(), messages.Cause{Code: messages.CauseStateUnknown})
	case starts.BackingOff:
		m.recordBackOff(c)
	case starts.Image, starts.AnotherTry:
		m.ensureImage(c)
	case starts.Target:
		c.Retry.Failed = &messages.Reason{
			Code: messages.ReasonCreateConfig, Container: c.Name, Message: "container " + c.Target +
				", whose processes it is to share, does not run",
		}
	case starts.Reading:
		m.readPod()
	case starts.None:
		m.run(c)
	case starts.Reason, starts.Earlier, starts.End:
	}
}

// run orders the container's actor to run the next attempt, or to adopt the present container. The back-off advances with a new
// attempt, but not when an actor is restarted with its attempt.
func (m *Machine) run(c *known.Container) {
	next := c.NextAttempt()
	if stands := m.Adoptable(c); stands != nil {
		next = stands.Attempt
	} else {
		switch f := c.Exited(); {
		case c.Replace || c.Earlier: // as with the kubelet, which removes all containers before it restarts them
			c.Backoff, c.Replace = backoff.Restarts{Policy: m.Set.BackOff}, false
		case next != c.Attempt && f != nil:
			c.Backoff = c.Backoff.Next(f.EndedAt, m.now)
		}
	}
	c.Enter(messages.StageStarting)
	c.Attempt, c.Sandbox = next, ""
	m.answered("run", c.Name)
	m.sendRun(c)
}

// ensureImage reports whether the image for the container's next start is present, and requests it otherwise.
func (m *Machine) ensureImage(c *known.Container) bool {
	if m.Adoptable(c) != nil {
		return true
	}
	attempt := c.NextAttempt()
	if c.Image.Attempt == attempt && c.Image.Ref != "" {
		return true
	}
	if c.Image.Attempt != attempt {
		c.Image.Forget()
		c.Image.Attempt = attempt
		m.answered("image", c.Name)
	}
	image, policy, volume := m.NextImage(c)
	m.ask("image", c.Name, messages.Images, messages.PullImage{
		Key: messages.ImageKey{UID: m.uid, Container: c.Name, Attempt: attempt, Volume: volume}, Image: image, Policy: policy,
		Pod: m.Pod, Priority: m.Wanted.Order,
	})
	return false
}

// sendRun sends the order to run to the container's actor, and repeats it until it is answered.
func (m *Machine) sendRun(c *known.Container) {
	current := m.Current()
	if current == nil || !m.due("run", c.Name, m.Set.AnswerTimeout) {
		return
	}
	if c.Sandbox != current.ID { // another try; its generation is larger than any of an earlier life
		c.Sandbox, c.Generation = current.ID, max(c.Generation+1, uint64(m.now.UnixNano()))
	}
	w := m.desiredRun(c)
	w.Sandbox = messages.Sandbox{
		ID: current.ID, Attempt: current.Attempt, IPs: current.IPs, CgroupParent: m.cgroup.parent, Handler: current.Handler,
	}
	if f := m.Adoptable(c); f != nil && f.Attempt == c.Attempt {
		w.Adopt = new(f.ContainerFact)
	}
	m.order(c, w)
}

func (m *Machine) desiredRun(c *known.Container) messages.RunContainer {
	return messages.RunContainer{
		Pod: m.Pod, Container: c.Spec, Attempt: c.Attempt, ImageRef: c.Image.Ref, Volumes: m.volumes.paths,
		Mounts: m.volumes.mounts, Groups: m.volumes.groups, ImageVolumes: c.Image.Volumes, BackOff: c.Backoff.Step,
		Order: m.Wanted.Order, Round: m.rounds.Now, Generation: c.Generation, TargetID: m.TargetID(c),
	}
}

// sendEnd informs the container's actor that the runtime reports its container as ended: it exits with that.
func (m *Machine) sendEnd(c *known.Container) {
	if !m.due("end", c.Name, m.Set.AnswerTimeout) {
		return
	}
	w := m.desiredRun(c)
	w.Adopt = new(c.Exited().ContainerFact)
	w.Attempt = w.Adopt.Attempt
	m.order(c, w)
}
