package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
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
func (m *Machine) lacks(now time.Time, c *container) (lack, time.Time) {
	what, until := m.lacksItself(now, c)
	switch {
	case what == nothing && m.startsAfter(now, c) != nil:
		what = anEarlier
	case what == nothing && c.sidecar() && c.exited() != nil && m.endsSoon():
		what = anEnd
	}
	return what, until
}

// endsSoon says that the pod is about to be over by itself: no regular container will be started again, and those that run are
// being stopped, by a probe that failed. The kubelet does nothing else meanwhile, however long a pre-stop hook takes.
func (m *Machine) endsSoon() bool {
	for _, c := range m.containers {
		last := c.stage == messages.StageStopping && m.pod.Spec.RestartPolicy == v1.RestartPolicyNever && !c.replace
		if c.regular() && !c.over(m.pod) && (!last || c.spec.RestartPolicy != nil) {
			return false
		}
	}
	return true
}

// lacksItself is the same, whatever the other containers do.
func (m *Machine) lacksItself(now time.Time, c *container) (lack, time.Time) {
	f := c.newest()
	if f != nil && f.State == messages.ContainerUnknown {
		return certainty, time.Time{}
	}
	if f = c.exited(); c.spec == nil || f != nil && c.over(m.pod) && !m.redo(c, f) {
		return reason, time.Time{}
	}
	stands, next := m.standing(c), c.nextAttempt()
	if f != nil && next != c.attempt { // where it was ordered before, its back-off is over
		if at := m.restartTime(now, c, f); at.After(now) {
			return backingOff, at
		}
	}
	switch {
	case !c.actor || m.asking("spawn", c.name):
		return anActor, time.Time{}
	case c.failed != nil && now.Before(c.failed.RetryAt):
		return anotherTry, c.failed.RetryAt
	case stands == nil && (c.image.attempt != next || c.image.ref == ""):
		return anImage, time.Time{}
	case stands == nil && c.target != "" && m.targetID(c) == "":
		return aTarget, time.Time{}
	case stands == nil && next != c.attempt && !c.unread.IsZero():
		return aReading, time.Time{}
	}
	return nothing, time.Time{}
}

// startsAfter is the regular container whose start has to end before the start of c may begin; nil when c may start now. As with
// the kubelet, regular containers start in the spec's order, one after another. A start goes from the pull of the image to the
// end of the post-start hook. A container that runs already is adopted, which waits for nothing.
func (m *Machine) startsAfter(now time.Time, c *container) *container {
	if !c.regular() || c.running() {
		return nil
	}
	for _, e := range m.containers {
		if e == c {
			break
		}
		if e.regular() && m.beingStarted(now, e) {
			return e
		}
	}
	return nil
}

// beingStarted says that a start of the container is under way. One that has failed is over until the container is tried again:
// it keeps nobody waiting, nor does a container that waits for the end of its back-off.
func (m *Machine) beingStarted(now time.Time, c *container) bool {
	if c.stage != messages.StageIdle {
		return c.stage == messages.StageStarting
	}
	switch what, _ := m.lacksItself(now, c); what {
	case anActor:
		at, awaited := m.asks[ask{"spawn", c.name}]
		return awaited && !at.After(now.Add(m.set.AnswerTimeout))
	case anImage:
		return c.image.reason == nil || c.image.awaits != nil
	case aReading, nothing:
		return true
	case reason, certainty, backingOff, anotherTry, aTarget, anEarlier, anEnd:
	}
	return false
}

// targetID is the ID of the container whose processes an ephemeral one shares, while that runs; else empty.
func (m *Machine) targetID(c *container) string {
	if t := m.container(c.target); t != nil && t.running() {
		return t.newest().ID
	}
	return ""
}

// start tells the container to run where nothing keeps it from that, and asks for what it lacks.
func (m *Machine) start(now time.Time, c *container) {
	what, _ := m.lacks(now, c)
	switch what {
	case certainty:
		m.stopContainer(now, c, m.grace(), unknownState)
	case backingOff:
		m.recordBackOff(c)
	case anActor:
		if m.spawn(now, c) {
			m.start(now, c)
		}
	case anImage, anotherTry:
		m.wantImage(now, c)
	case aTarget:
		c.failed = &messages.Reason{
			Code: messages.ReasonCreateConfig, Container: c.name, Message: "container " + c.target +
				", whose processes it is to share, does not run",
		}
	case aReading:
		if m.due(now, "read", "", m.set.AnswerTimeout) {
			m.emit(Tell{messages.Runtime, messages.ReadPod{UID: m.uid}})
		}
	case nothing:
		m.run(now, c)
	case reason, anEarlier, anEnd:
	}
}

// run tells the container's actor to run its next attempt, or to adopt what stands for it. The back-off moves on with a new
// attempt, and not with one that a restarted actor had been given before.
func (m *Machine) run(now time.Time, c *container) {
	next := c.nextAttempt()
	if stands := m.standing(c); stands != nil {
		next = stands.Attempt
	} else {
		f := c.exited()
		switch {
		case c.replace || c.earlier: // with all others: as with the kubelet, which removes them all first
			c.backoff, c.replace = backoff{}, false
		case next != c.attempt && f != nil:
			c.backoff = m.set.BackOff.next(c.backoff, f.FinishedAt, now)
		}
	}
	c.attempt, c.stage, c.sandbox = next, messages.StageStarting, ""
	m.answered("run", c.name)
	m.tellRun(now, c)
}

// standing is the container that was made for the present attempt and can be adopted. One that never ran is made again where
// the spec has changed.
func (m *Machine) standing(c *container) *messages.ContainerFact {
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
func (m *Machine) wantImage(now time.Time, c *container) bool {
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
	if m.due(now, "image", c.name, m.set.AnswerTimeout) {
		image, policy, volume := m.nextImage(c)
		m.emit(Tell{messages.Images, messages.PullImage{
			Key: messages.ImageKey{UID: m.uid, Container: c.name, Attempt: attempt, Volume: volume}, Image: image, Policy: policy,
			Pod: m.pod, Priority: m.desired.Order,
		}})
	}
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
func (m *Machine) tellRun(now time.Time, c *container) {
	current, again := m.sandboxes.current(), m.asking("run", c.name)
	if current == nil || !m.due(now, "run", c.name, m.set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c) // its actor may have exited, and the word of that be lost
	}
	if c.sandbox != current.ID { // another try; its generation is larger than any of an earlier life, too
		c.sandbox, c.generation = current.ID, max(c.generation+1, uint64(now.UnixNano()))
	}
	w := m.desiredRun(c)
	w.Sandbox = messages.Sandbox{
		ID: current.ID, Attempt: current.Attempt, IPs: current.IPs, CgroupParent: m.cgroup.parent, Handler: current.Handler,
	}
	if f := m.standing(c); f != nil && f.Attempt == c.attempt {
		adopt := *f
		w.Adopt = &adopt
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}

func (m *Machine) desiredRun(c *container) messages.RunContainer {
	return messages.RunContainer{
		Pod: m.pod, Container: c.spec, Attempt: c.attempt, ImageRef: c.image.ref, Volumes: m.volumes.paths,
		ImageVolumes: c.image.volumes, BackOff: c.backoff.step, Order: m.desired.Order, Round: m.rounds.now,
		Generation: c.generation, TargetID: m.targetID(c),
	}
}

// tellEnd tells the container's actor that the runtime shows its container ended: it exits with that.
func (m *Machine) tellEnd(now time.Time, c *container) {
	again := m.asking("end", c.name)
	if !m.due(now, "end", c.name, m.set.AnswerTimeout) {
		return
	}
	if again {
		m.supervise(c)
	}
	w, ended := m.desiredRun(c), *c.exited()
	w.Attempt, w.Adopt = ended.Attempt, &ended
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}
