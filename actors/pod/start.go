package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/messages"
)

// lack is what keeps a container from its start.
type lack string

const (
	nothing    lack = ""
	reason     lack = "a reason to run" // it has ended for good
	certainty  lack = "a known state"   // it is ended before it is started again
	backingOff lack = "the end of its back-off"
	anActor    lack = "an actor"
	anImage    lack = "its image"
	anotherTry lack = "the end of the pause after a failed start"
	anEarlier  lack = "the end of an earlier container's start"
	aTarget    lack = "the container whose processes it is to share"
	aReading   lack = "a reading that shows what the latest start made"
	anEnd      lack = "the end of the pod, which nothing is started before" // a sidecar that has ended
)

// lacks is the one place that says whether a container may start now: nothing keeps it, or what it lacks, and until when, where
// that is known.
func (m *Machine) lacks(c *known.Container) (lack, time.Time) {
	what, until := m.lacksItself(c)
	switch {
	case what == nothing && m.waitsInLine(c):
		what = anEarlier
	case what == nothing && c.Sidecar() && c.Exited() != nil && m.endsSoon():
		what = anEnd
	}
	return what, until
}

// endsSoon says that the pod is about to be over by itself: no regular container will be started again, and those that run are
// being stopped, by a probe that failed. The kubelet does nothing else meanwhile, however long a pre-stop hook takes.
func (m *Machine) endsSoon() bool {
	return !slices.ContainsFunc(m.Containers, func(c *known.Container) bool {
		last := c.Stage == messages.StageStopping && m.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && !c.Replace
		return c.Regular() && !c.Over(m.Pod) && (!last || c.Spec.RestartPolicy != nil)
	})
}

// lacksItself is the same, whatever the other containers do.
func (m *Machine) lacksItself(c *known.Container) (lack, time.Time) {
	f := c.Newest()
	if f != nil && f.State == messages.ContainerUnknown {
		return certainty, time.Time{}
	}
	if f = c.Exited(); c.Spec == nil || f != nil && c.Over(m.Pod) && !m.redo(c, f) {
		return reason, time.Time{}
	}
	stands, next := m.Standing(c), c.NextAttempt()
	if f != nil && next != c.Attempt { // where it was ordered before, its back-off is over
		if at := m.RestartTime(m.now, c, f.FinishedAt); at.After(m.now) {
			return backingOff, at
		}
	}
	switch {
	case !c.Actor || m.asking("spawn", c.Name):
		return anActor, time.Time{}
	case m.now.Before(c.Retry.At):
		return anotherTry, c.Retry.At
	case stands == nil && (c.Image.Attempt != next || c.Image.Ref == ""):
		return anImage, time.Time{}
	case stands == nil && c.Target != "" && m.TargetID(c) == "":
		return aTarget, time.Time{}
	case stands == nil && next != c.Attempt && !c.Unread.IsZero():
		return aReading, time.Time{}
	}
	return nothing, time.Time{}
}

// waitsInLine says that the start of another regular container has to end before that of c may begin. As with the kubelet,
// regular containers start in the spec's order, one after another. A start goes from the pull of the image to the end of the
// post-start hook. A container that runs already is adopted, which waits for nothing.
func (m *Machine) waitsInLine(c *known.Container) bool {
	before := m.Containers[:slices.Index(m.Containers, c)]
	return c.Regular() && !c.Running() && slices.ContainsFunc(before, func(e *known.Container) bool {
		return e.Regular() && m.beingStarted(e)
	})
}

// beingStarted says that a start of the container is under way. One that has failed is over until the container is tried again:
// it keeps nobody waiting, nor does a container that waits for the end of its back-off.
func (m *Machine) beingStarted(c *known.Container) bool {
	if c.Stage != messages.StageIdle {
		return c.Stage == messages.StageStarting
	}
	switch what, _ := m.lacksItself(c); what {
	case anActor:
		at, awaited := m.asks[ask{"spawn", c.Name}]
		return awaited && !at.After(m.now.Add(m.Set.AnswerTimeout))
	case anImage:
		return c.Image.Reason == nil || c.Image.Awaits != nil
	case aReading, nothing:
		return true
	case reason, certainty, backingOff, anotherTry, aTarget, anEarlier, anEnd:
	}
	return false
}

// start tells the container to run where nothing keeps it from that, and asks for what it lacks.
func (m *Machine) start(c *known.Container) {
	what, _ := m.lacks(c)
	switch what {
	case certainty:
		m.stopContainer(c, m.grace(), unknownState)
	case backingOff:
		m.recordBackOff(c)
	case anActor:
		if m.spawn(c) {
			m.start(c)
		}
	case anImage, anotherTry:
		m.wantImage(c)
	case aTarget:
		c.Retry.Failed = &messages.Reason{
			Code: messages.ReasonCreateConfig, Container: c.Name, Message: "container " + c.Target +
				", whose processes it is to share, does not run",
		}
	case aReading:
		m.readPod()
	case nothing:
		m.run(c)
	case reason, anEarlier, anEnd:
	}
}

// run tells the container's actor to run its next attempt, or to adopt what stands for it. The back-off moves on with a new
// attempt, and not with one that a restarted actor had been given before.
func (m *Machine) run(c *known.Container) {
	next := c.NextAttempt()
	if stands := m.Standing(c); stands != nil {
		next = stands.Attempt
	} else {
		switch f := c.Exited(); {
		case c.Replace || c.Earlier: // with all others: as with the kubelet, which removes them all first
			c.Backoff, c.Replace = restarts.Place{}, false
		case next != c.Attempt && f != nil:
			c.Backoff = m.Set.BackOff.Next(c.Backoff, f.FinishedAt, m.now)
		}
	}
	c.Attempt, c.Stage, c.Sandbox = next, messages.StageStarting, ""
	m.answered("run", c.Name)
	m.tellRun(c)
}

// wantImage reports whether the image for the container's next start is there, and asks for it otherwise.
func (m *Machine) wantImage(c *known.Container) bool {
	if m.Standing(c) != nil {
		return true
	}
	attempt := c.NextAttempt()
	if c.Image.Attempt == attempt && c.Image.Ref != "" {
		return true
	}
	if c.Image.Attempt != attempt {
		c.NoImage()
		c.Image.Attempt = attempt
		m.answered("image", c.Name)
	}
	image, policy, volume := m.NextImage(c)
	m.ask("image", c.Name, messages.Images, messages.PullImage{
		Key: messages.ImageKey{UID: m.uid, Container: c.Name, Attempt: attempt, Volume: volume}, Image: image, Policy: policy,
		Pod: m.Pod, Priority: m.desired.Order,
	})
	return false
}

// tellRun tells the container's actor what it is to run, and again while there is no answer.
func (m *Machine) tellRun(c *known.Container) {
	current, again := m.Sandboxes.Current(), m.asking("run", c.Name)
	if current == nil || !m.due("run", c.Name, m.Set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c) // its actor may have exited, and the word of that be lost
	}
	if c.Sandbox != current.ID { // another try; its generation is larger than any of an earlier life, too
		c.Sandbox, c.Generation = current.ID, max(c.Generation+1, uint64(m.now.UnixNano()))
	}
	w := m.desiredRun(c)
	w.Sandbox = messages.Sandbox{
		ID: current.ID, Attempt: current.Attempt, IPs: current.IPs, CgroupParent: m.cgroup.parent, Handler: current.Handler,
	}
	if f := m.Standing(c); f != nil && f.Attempt == c.Attempt {
		w.Adopt = new(f.ContainerFact)
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.Name), w})
}

func (m *Machine) desiredRun(c *known.Container) messages.RunContainer {
	return messages.RunContainer{
		Pod: m.Pod, Container: c.Spec, Attempt: c.Attempt, ImageRef: c.Image.Ref, Volumes: m.volumes.paths,
		ImageVolumes: c.Image.Volumes, BackOff: c.Backoff.Step, Order: m.desired.Order, Round: m.rounds.Now,
		Generation: c.Generation, TargetID: m.TargetID(c),
	}
}

// tellEnd tells the container's actor that the runtime shows its container ended: it exits with that.
func (m *Machine) tellEnd(c *known.Container) {
	again := m.asking("end", c.Name)
	if !m.due("end", c.Name, m.Set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c)
	}
	w := m.desiredRun(c)
	w.Adopt = new(c.Exited().ContainerFact)
	w.Attempt = w.Adopt.Attempt
	m.emit(Tell{messages.ContainerAddress(m.uid, c.Name), w})
}
