package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// container is what the pod knows of one container. The states of a run are in the table of actors/container; here is what
// was sent to its actor last, and what the actor answered.
type container struct {
	name string
	spec *v1.Container // nil when the spec no longer has it
	init bool
	// ephemeral containers (KEP-277) are started once, whatever becomes of them, and nobody waits for them or goes by their end.
	ephemeral bool
	target    string // the container whose processes an ephemeral one shares, where it does
	// stage is the actor's, as ordered or as reported: idle, starting, running or stopping.
	stage messages.ContainerStage
	actor bool                     // an actor is there, or is being started
	facts []messages.ContainerFact // newest first
	// attempt and generation are those of the latest RunContainer; sandbox is the one that it named.
	attempt    uint32
	generation uint64
	sandbox    string
	free       uint32 // lowest attempt whose name can be had
	ended      uint32 // lowest attempt whose end was not noted yet
	// unread is since when a start that is not waited for any more may be under way, or may have been made without our
	// knowing: no other attempt is begun, and no sandbox is stopped, before a later reading.
	unread time.Time
	image  struct {
		attempt uint32
		ref     string            // of its own image, which is asked for when those of its volumes are there
		volumes map[string]string // the same of its volumes that are images, by their names
		reason  *messages.Reason  // why it could not be had
		awaits  *messages.Reason  // how far its pull is; newer than reason, where both are there
		pulling bool              // an Event of its pull was recorded
	}
	earlier bool // its newest is of an earlier round: it is ended, and made again
	backoff backoff
	proved  proved
	hooked  hooked
	ends    struct { // as its actor was asked to end it
		grace    time.Duration
		until    time.Time
		why      string
		hookOnly bool   // its signal waits for its turn
		failed   string // why the runtime could not end it, the last time; empty: it could, or is at it
	}
	applied applied
	made    struct { // what the newest one was made with, once that was read
		id        string
		resources *v1.ResourceRequirements
	}
	held    string           // the ID of the container whose back-off has an Event
	failed  *messages.Reason // why this attempt could not be started, and when it is tried again
	tries   int              // failures to start in a row
	replace bool             // it is being stopped because its spec changed, or on request: its back-off starts anew
	renew   string           // the ID of the container that is to be ended on request, and started again
}

func (c *container) newest() *messages.ContainerFact {
	if len(c.facts) == 0 {
		return nil
	}
	return &c.facts[0]
}

// exited is the newest fact when it is an end.
func (c *container) exited() *messages.ContainerFact {
	if f := c.newest(); f != nil && f.State == messages.ContainerExited {
		return f
	}
	return nil
}

func (c *container) running() bool {
	f := c.newest()
	return f != nil && f.State == messages.ContainerRunning
}

// regular says that the container is one of spec.containers: their ends are the pod's.
func (c *container) regular() bool { return c.spec != nil && !c.init && !c.ephemeral }

func (c *container) sidecar() bool {
	return c.spec != nil && c.init && translate.RestartsAlways(c.spec)
}

// over says that the container has ended and will not be started again. An end that came before the attempt that was ordered last
// says nothing of that one.
func (c *container) over(pod *v1.Pod) bool {
	f := c.exited()
	return f != nil && c.spec != nil && !c.replace && f.Attempt >= c.attempt && c.answer(pod, *f) != restart
}

// learn takes the CRI's word on the container's attempts, newest first. A word that is older than what is known of the
// same attempt is not taken. A container whose start was cut off is as if it had never been: the same attempt is made
// again, in its place, and is not counted as a restart.
func (c *container) learn(f messages.ContainerFact) {
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

// noteEnds has the log say of each container how it ended, once. What had ended before this actor's first reading is old.
func (m *Machine) noteEnds() {
	for _, c := range m.containers {
		for _, f := range slices.Backward(c.facts) {
			if f.State != messages.ContainerExited || f.Attempt < c.ended {
				continue
			}
			c.ended = f.Attempt + 1
			if m.phase != Reading {
				m.emit(Ended{f})
				m.recordEnd(c, f)
			}
		}
	}
}

// container finds a container by name.
func (m *Machine) container(name string) *container {
	for _, c := range m.containers {
		if c.name == name {
			return c
		}
	}
	return nil
}

// matchSpec makes the containers those of the spec, keeping what is known by name.
func (m *Machine) matchSpec() {
	old := m.containers
	m.containers = nil
	add := func(spec *v1.Container, init bool) {
		i := slices.IndexFunc(old, func(c *container) bool { return c != nil && c.name == spec.Name })
		c := &container{name: spec.Name, stage: messages.StageIdle}
		if i >= 0 {
			c, old[i] = old[i], nil
		}
		c.spec, c.init = spec, init
		m.containers = append(m.containers, c)
	}
	for i := range m.pod.Spec.InitContainers {
		add(&m.pod.Spec.InitContainers[i], true)
	}
	for i := range m.pod.Spec.Containers {
		add(&m.pod.Spec.Containers[i], false)
	}
	for i := range m.pod.Spec.EphemeralContainers {
		e := &m.pod.Spec.EphemeralContainers[i]
		add((*v1.Container)(&e.EphemeralContainerCommon), false)
		c := m.containers[len(m.containers)-1]
		c.ephemeral, c.target = true, e.TargetContainerName
	}
	for _, c := range old {
		if c != nil {
			c.spec = nil
			m.containers = append(m.containers, c)
		}
	}
}
