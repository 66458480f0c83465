package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/messages"
)

// stage is where one container is between its spec and its end.
type stage string

const (
	idle     stage = "idle"     // not its turn, or done
	due      stage = "due"      // its actor is to be spawned at a time
	spawning stage = "spawning" // the layer is starting its actor
	imaging  stage = "imaging"  // its image is awaited
	starting stage = "starting" // its actor has been told to run it
	up       stage = "up"       // it runs
	stopping stage = "stopping" // its actor has been told to end it
)

// con is the pod's book on one container.
type con struct {
	name    string
	spec    *v1.Container // nil when the spec no longer has it
	init    bool
	stage   stage
	at      time.Time                // of stage due
	actor   bool                     // an actor is there, or is being started
	facts   []messages.ContainerFact // newest first
	attempt uint32                   // being started, from stage imaging on
	turn    uint64                   // of the latest RunContainer
	told    string                   // the sandbox of the latest RunContainer
	image   struct {
		attempt uint32
		ref     string
		reason  *messages.Reason
	}
	backoff backoff
	failed  *messages.Reason        // why this attempt could not be created
	tries   int                     // failures to create in a row
	replace bool                    // it is being stopped because its spec changed: its back-off starts anew
	seen    *messages.ContainerFact // its end, as read; its actor is to confirm it
}

func (c *con) newest() *messages.ContainerFact {
	if len(c.facts) == 0 {
		return nil
	}
	return &c.facts[0]
}

// exited is the newest fact when it is an end.
func (c *con) exited() *messages.ContainerFact {
	if f := c.newest(); f != nil && f.State == messages.ContainerExited {
		return f
	}
	return nil
}

func (c *con) running() bool {
	f := c.newest()
	return f != nil && f.State == messages.ContainerRunning
}

func (c *con) sidecar() bool { return c.spec != nil && c.init && isSidecar(c.spec) }

// over says that the container has ended and will not be started again.
func (c *con) over(pod *v1.Pod) bool {
	f := c.exited()
	return f != nil && c.spec != nil && !c.replace && strategy(pod, c.spec, c.init, *f) != restart
}

// learn takes the CRI's word on the container's attempts, newest first. A word that is older than what is known of the
// same attempt is not taken. A container whose start was cut off is as if it had never been: the same attempt is made
// again, in its place, and is not counted as a restart.
func (c *con) learn(f messages.ContainerFact) {
	if facts.CutOff(f) {
		c.facts = slices.DeleteFunc(c.facts, func(o messages.ContainerFact) bool { return o.ID == f.ID })
		return
	}
	i, found := slices.BinarySearchFunc(c.facts, f, func(a, b messages.ContainerFact) int {
		return int(b.Attempt) - int(a.Attempt)
	})
	if !found {
		c.facts = slices.Insert(c.facts, i, f)
		if len(c.facts) > 2 {
			c.facts = c.facts[:2]
		}
		return
	}
	known := c.facts[i]
	if known.ID == f.ID && behind(f.State, known.State) {
		return // a reading that began before this was known
	}
	if known.ID != f.ID && f.CreatedAt.Before(known.CreatedAt) {
		return // an older container of the same attempt, of a sandbox that is gone
	}
	c.facts[i] = f
}

// behind says that a word on a container is older than what is known of it: an end is final, and what has run was created
// before. A runtime that comes back may no longer know the state of what ran, and may find it again.
func behind(word, known messages.ContainerState) bool {
	switch known {
	case messages.ContainerExited:
		return word != messages.ContainerExited
	case messages.ContainerRunning:
		return word == messages.ContainerCreated
	case messages.ContainerCreated, messages.ContainerUnknown:
	}
	return false
}

// con finds a container's book by name.
func (m *Machine) con(name string) *con {
	for _, c := range m.cons {
		if c.name == name {
			return c
		}
	}
	return nil
}

// book makes the books match the spec, keeping what is known by name.
func (m *Machine) book() {
	old := m.cons
	m.cons = nil
	add := func(spec *v1.Container, init bool) {
		i := slices.IndexFunc(old, func(c *con) bool { return c != nil && c.name == spec.Name })
		c := &con{name: spec.Name, stage: idle}
		if i >= 0 {
			c, old[i] = old[i], nil
		}
		c.spec, c.init = spec, init
		m.cons = append(m.cons, c)
	}
	for i := range m.pod.Spec.InitContainers {
		add(&m.pod.Spec.InitContainers[i], true)
	}
	for i := range m.pod.Spec.Containers {
		add(&m.pod.Spec.Containers[i], false)
	}
	for _, c := range old {
		if c != nil {
			c.spec = nil
			m.cons = append(m.cons, c)
		}
	}
}

// ensure brings one container towards running, and reports whether it runs. It is its turn.
func (m *Machine) ensure(now time.Time, c *con) bool {
	f := c.newest()
	if f != nil && f.State == messages.ContainerUnknown && (c.stage == imaging || c.stage == up) {
		m.stopContainer(now, c, m.grace(), "the runtime does not know its state")
		return false
	}
	switch c.stage {
	case idle:
		return m.ensureIdle(now, c, f)
	case due:
		if !now.Before(c.at) {
			m.spawn(now, c)
		}
	case spawning:
		if m.due(now, "spawn", c.name, m.set.Patience) {
			m.emit(SpawnContainer{c.name})
			c.stage = imaging // should the word of its start be lost, it is told its wish all the same
			m.ensureImage(now, c)
		}
	case imaging:
		m.ensureImage(now, c)
	case starting:
		m.tellRun(now, c)
	case up:
		if f == nil || f.State == messages.ContainerCreated { // it was taken away, and what stands there never ran
			return m.ensureIdle(now, c, f)
		}
		if c.spec != nil && f != nil && f.State == messages.ContainerRunning && m.set.Changed(c.spec, *f) {
			c.replace = true
			m.stopContainer(now, c, m.grace(), "its spec changed")
			return false
		}
		m.tellSeen(now, c)
		return c.running()
	case stopping:
		m.stopContainer(now, c, m.grace(), "its spec changed")
	}
	return false
}

// ensureIdle decides what a container needs that nothing is being done about.
func (m *Machine) ensureIdle(now time.Time, c *con, f *messages.ContainerFact) bool {
	switch {
	case c.spec == nil:
	case f == nil:
		m.startAt(now, c, now)
	case f.State == messages.ContainerExited:
		if !c.over(m.pod) || m.redo(c, f) {
			m.startAt(now, c, m.restartTime(now, c, f))
		}
	case f.State == messages.ContainerUnknown:
		m.stopContainer(now, c, m.grace(), "the runtime does not know its state")
	default: // created or running: adopted, or, where it was created in a sandbox that is gone, made again
		m.startAt(now, c, now)
	}
	return false
}

// redo says that an init container that succeeded must run again, since it did so in another sandbox.
func (m *Machine) redo(c *con, f *messages.ContainerFact) bool {
	current := m.box.current()
	return c.init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// restartTime is when a container that ended may start again. The end is told by the runtime's clock: where that, or ours,
// was set since, nobody waits longer than the back-off from now.
func (m *Machine) restartTime(now time.Time, c *con, f *messages.ContainerFact) time.Time {
	if c.replace {
		return now
	}
	return m.set.BackOff.after(now, c.backoff, f.FinishedAt)
}

// startAt has the container's actor there at the given time: spawned, or, when there is one, restarted.
func (m *Machine) startAt(now time.Time, c *con, at time.Time) {
	if c.actor {
		c.stage, c.at = spawning, at
		m.answered("run", c.name)
		m.asks[ask{"spawn", c.name}] = later(now, at).Add(m.set.Patience)
		m.emit(RestartContainer{c.name, max(at.Sub(now), 0)})
		return
	}
	if at.After(now) {
		c.stage, c.at = due, at
		return
	}
	m.spawn(now, c)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (m *Machine) spawn(now time.Time, c *con) {
	c.stage, c.actor, c.at = spawning, true, time.Time{}
	m.asks[ask{"spawn", c.name}] = now.Add(m.set.Patience)
	m.emit(SpawnContainer{c.name})
}

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
	next := nextAttempt(f)
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
	if f.State == messages.ContainerRunning || (f.State == messages.ContainerCreated && c.spec != nil && !m.set.Changed(c.spec, *f)) {
		return f
	}
	return nil
}

func nextAttempt(f *messages.ContainerFact) uint32 {
	if f == nil {
		return 0
	}
	return f.Attempt + 1
}

// wantImage reports whether the image for the container's next start is there, and asks for it otherwise.
func (m *Machine) wantImage(now time.Time, c *con) bool {
	if m.standing(c) != nil {
		return true
	}
	attempt := nextAttempt(c.newest())
	if c.image.attempt == attempt && c.image.ref != "" {
		return true
	}
	if c.image.attempt != attempt {
		c.image.attempt, c.image.ref, c.image.reason = attempt, "", nil
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
	c.stage, c.told = starting, ""
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
		Sandbox: messages.Sandbox{ID: current.ID, Attempt: current.Attempt, IPs: current.IPs},
		BackOff: c.backoff.step, Order: m.wish.Order, Turn: c.turn,
	}
	if f := m.standing(c); f != nil && f.Attempt == c.attempt {
		adopt := *f
		w.Adopt = &adopt
	}
	m.emit(Tell{messages.ContainerAddress(m.uid, c.name), w})
}

// answerEnd notes that a container's end is known. Where it is the container's turn, the plan answers it, by
// restartPolicy.
func (m *Machine) answerEnd(c *con) {
	c.stage, c.seen = idle, nil
	m.answered("run", c.name)
	m.answered("stop", c.name)
	m.answered("observe", c.name)
}

// stopContainer has a container ended, through its actor.
func (m *Machine) stopContainer(now time.Time, c *con, grace time.Duration, why string) {
	if c.stage != stopping {
		c.stage = stopping
		m.answered("run", c.name)
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
