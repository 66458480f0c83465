package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
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
func (m *Machine) lacks(c *container) (lack, time.Time) {
	what, until := m.lacksItself(c)
	switch {
	case what == nothing && m.waitsInLine(c):
		what = anEarlier
	case what == nothing && c.sidecar() && c.exited() != nil && m.endsSoon():
		what = anEnd
	}
	return what, until
}

// endsSoon says that the pod is about to be over by itself: no regular container will be started again, and those that run are
// being stopped, by a probe that failed. The kubelet does nothing else meanwhile, however long a pre-stop hook takes.
func (m *Machine) endsSoon() bool {
	return !slices.ContainsFunc(m.containers, func(c *container) bool {
		last := c.stage == messages.StageStopping && m.pod.Spec.RestartPolicy == v1.RestartPolicyNever && !c.replace
		return c.regular() && !c.over(m.pod) && (!last || c.spec.RestartPolicy != nil)
	})
}

// lacksItself is the same, whatever the other containers do.
func (m *Machine) lacksItself(c *container) (lack, time.Time) {
	f := c.newest()
	if f != nil && f.State == messages.ContainerUnknown {
		return certainty, time.Time{}
	}
	if f = c.exited(); c.spec == nil || f != nil && c.over(m.pod) && !m.redo(c, f) {
		return reason, time.Time{}
	}
	stands, next := m.standing(c), c.nextAttempt()
	if f != nil && next != c.attempt { // where it was ordered before, its back-off is over
		if at := m.restartTime(m.now, c, f.FinishedAt); at.After(m.now) {
			return backingOff, at
		}
	}
	switch {
	case !c.actor || m.asking("spawn", c.name):
		return anActor, time.Time{}
	case m.now.Before(c.retry.At):
		return anotherTry, c.retry.At
	case stands == nil && (c.image.attempt != next || c.image.ref == ""):
		return anImage, time.Time{}
	case stands == nil && c.target != "" && m.targetID(c) == "":
		return aTarget, time.Time{}
	case stands == nil && next != c.attempt && !c.unread.IsZero():
		return aReading, time.Time{}
	}
	return nothing, time.Time{}
}

// waitsInLine says that the start of another regular container has to end before that of c may begin. As with the kubelet,
// regular containers start in the spec's order, one after another. A start goes from the pull of the image to the end of the
// post-start hook. A container that runs already is adopted, which waits for nothing.
func (m *Machine) waitsInLine(c *container) bool {
	before := m.containers[:slices.Index(m.containers, c)]
	return c.regular() && !c.running() && slices.ContainsFunc(before, func(e *container) bool {
		return e.regular() && m.beingStarted(e)
	})
}

// beingStarted says that a start of the container is under way. One that has failed is over until the container is tried again:
// it keeps nobody waiting, nor does a container that waits for the end of its back-off.
func (m *Machine) beingStarted(c *container) bool {
	if c.stage != messages.StageIdle {
		return c.stage == messages.StageStarting
	}
	switch what, _ := m.lacksItself(c); what {
	case anActor:
		at, awaited := m.asks[ask{"spawn", c.name}]
		return awaited && !at.After(m.now.Add(m.set.AnswerTimeout))
	case anImage:
		return c.image.reason == nil || c.image.awaits != nil
	case aReading, nothing:
		return true
	case reason, certainty, backingOff, anotherTry, aTarget, anEarlier, anEnd:
	}
	return false
}

// targetID is the ID of the container whose processes an ephemeral one shares, while that runs; else empty.
func (s *state) targetID(c *container) string {
	if t := s.container(c.target); t != nil && t.running() {
		return t.newest().ID
	}
	return ""
}

// start tells the container to run where nothing keeps it from that, and asks for what it lacks.
func (m *Machine) start(c *container) {
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
		c.retry.Failed = &messages.Reason{
			Code: messages.ReasonCreateConfig, Container: c.name, Message: "container " + c.target +
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
func (m *Machine) run(c *container) {
	next := c.nextAttempt()
	if stands := m.standing(c); stands != nil {
		next = stands.Attempt
	} else {
		switch f := c.exited(); {
		case c.replace || c.earlier: // with all others: as with the kubelet, which removes them all first
			c.backoff, c.replace = restarts.Place{}, false
		case next != c.attempt && f != nil:
			c.backoff = m.set.BackOff.Next(c.backoff, f.FinishedAt, m.now)
		}
	}
	c.attempt, c.stage, c.sandbox = next, messages.StageStarting, ""
	m.answered("run", c.name)
	m.tellRun(c)
}

// standing is the container that was made for the present attempt and can be adopted. One that never ran is made again where
// the spec has changed.
func (m *Machine) standing(c *container) *attempt {
	f, current := c.newest(), m.sandboxes.current()
	if f == nil || current == nil || f.SandboxID != current.ID || c.earlier {
		return nil
	}
	if f.State == messages.ContainerRunning || (f.State == messages.ContainerCreated && c.spec != nil && !m.changed(c, f)) {
		return f
	}
	return nil
}

// nextAttempt is the number of the container that is to be made next.
func (c *container) nextAttempt() uint32 {
	if f := c.newest(); f != nil {
		return max(f.Attempt+1, c.free)
	}
	return c.free
}

// wantImage reports whether the image for the container's next start is there, and asks for it otherwise.
func (m *Machine) wantImage(c *container) bool {
	if m.standing(c) != nil {
		return true
	}
	attempt := c.nextAttempt()
	if c.image.attempt == attempt && c.image.ref != "" {
		return true
	}
	if c.image.attempt != attempt {
		c.noImage()
		c.image.attempt = attempt
		m.answered("image", c.name)
	}
	image, policy, volume := m.nextImage(c)
	m.ask("image", c.name, messages.Images, messages.PullImage{
		Key: messages.ImageKey{UID: m.uid, Container: c.name, Attempt: attempt, Volume: volume}, Image: image, Policy: policy,
		Pod: m.pod, Priority: m.desired.Order,
	})
	return false
}

// nextImage is the image that the container needs next: those of its volumes first, as with the kubelet, then its own.
func (m *Machine) nextImage(c *container) (image string, policy v1.PullPolicy, volume string) {
	for _, v := range podspec.ImageVolumes(m.pod, c.spec) {
		if c.image.volumes[v.Name] == "" {
			return v.Image.Reference, v.Image.PullPolicy, v.Name
		}
	}
	return c.spec.Image, c.spec.ImagePullPolicy, ""
}

// noImage forgets what is known of the images that the container needs.
func (c *container) noImage() {
	c.image.ref, c.image.volumes, c.image.reason, c.image.awaits = "", nil, nil, nil
}

// tellRun tells the container's actor what it is to run, and again while there is no answer.
func (m *Machine) tellRun(c *container) {
	current, again := m.sandboxes.current(), m.asking("run", c.name)
	if current == nil || !m.due("run", c.name, m.set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c) // its actor may have exited, and the word of that be lost
	}
	if c.sandbox != current.ID { // another try; its generation is larger than any of an earlier life, too
		c.sandbox, c.generation = current.ID, max(c.generation+1, uint64(m.now.UnixNano()))
	}
	w := m.desiredRun(c)
	w.Sandbox = messages.Sandbox{
		ID: current.ID, Attempt: current.Attempt, IPs: current.IPs, CgroupParent: m.cgroup.parent, Handler: current.Handler,
	}
	if f := m.standing(c); f != nil && f.Attempt == c.attempt {
		w.Adopt = new(f.ContainerFact)
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}

func (m *Machine) desiredRun(c *container) messages.RunContainer {
	return messages.RunContainer{
		Pod: m.pod, Container: c.spec, Attempt: c.attempt, ImageRef: c.image.ref, Volumes: m.volumes.paths,
		ImageVolumes: c.image.volumes, BackOff: c.backoff.Step, Order: m.desired.Order, Round: m.rounds.now,
		Generation: c.generation, TargetID: m.targetID(c),
	}
}

// tellEnd tells the container's actor that the runtime shows its container ended: it exits with that.
func (m *Machine) tellEnd(c *container) {
	again := m.asking("end", c.name)
	if !m.due("end", c.name, m.set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c)
	}
	w := m.desiredRun(c)
	w.Adopt = new(c.exited().ContainerFact)
	w.Attempt = w.Adopt.Attempt
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}
