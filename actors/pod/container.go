package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// state is what is known of a pod, beside what it waits for.
type state struct {
	pod        *v1.Pod // as it is wanted; nil: that is not known
	sandboxes  sandboxes
	containers []*container // in order: init, regular, ephemeral containers, then those that are no longer in the spec
}

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
	stage    messages.ContainerStage
	actor    bool      // an actor is there, or is being started
	attempts []attempt // newest first
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
	backoff restarts.Place
	ends    struct { // as its actor was asked to end it
		grace    time.Duration
		until    time.Time
		why      string
		hookOnly bool   // its signal waits for its turn
		failed   string // why the runtime could not end it, the last time; empty: it could, or is at it
	}
	retry   restarts.Retry // of the start of this attempt
	replace bool           // it is being stopped because its spec changed, or on request: its back-off starts anew
}

// attempt is what the pod knows of one attempt of a container.
type attempt struct {
	messages.ContainerFact
	// noticed is when, by our own clock, it was first known to be there: a later reading that lacks it says that it is gone. The
	// times that the runtime tells are of no use for this, since clocks are set.
	noticed time.Time
	results messages.ProbeResults
	failing []messages.FailingProbe // probes
	hook    hook
	given   resources.Given
	held    bool // its back-off has an Event
	renew   bool // it is to be ended on request, and started again
}

// hook is what is known of the post-start hook of an attempt.
type hook struct {
	known  bool // its actor has told of it
	done   bool
	failed string // why it failed; empty: it did not
}

func (c *container) newest() *attempt {
	if len(c.attempts) == 0 {
		return nil
	}
	return &c.attempts[0]
}

// is says that the newest attempt is this one.
func (c *container) is(id string) bool { return len(c.attempts) > 0 && c.attempts[0].ID == id }

// exited is the newest attempt when it has ended.
func (c *container) exited() *attempt {
	if f := c.newest(); f != nil && f.State == messages.ContainerExited {
		return f
	}
	return nil
}

func (c *container) running() bool {
	f := c.newest()
	return f != nil && f.State == messages.ContainerRunning
}

// alive says that there is a process to end, as far as is known.
func (c *container) alive() bool {
	f := c.newest()
	return f != nil && f.Alive()
}

// madeIn says that an attempt was made in this sandbox.
func (c *container) madeIn(sandbox string) bool {
	return slices.ContainsFunc(c.attempts, func(f attempt) bool { return f.SandboxID == sandbox })
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
	return f != nil && c.spec != nil && !c.replace && f.Attempt >= c.attempt && c.answer(pod, f.ContainerFact) != restarts.Again
}

// learn takes the CRI's word on one of the container's attempts, at a time of our own clock. A word that is older than what is
// known of the same attempt is not taken. A container whose start was cut off is as if it had never been: the same attempt is
// made again, in its place, and is not counted as a restart.
func (c *container) learn(f messages.ContainerFact, at time.Time) {
	if facts.CutOff(f) {
		c.attempts = slices.DeleteFunc(c.attempts, func(o attempt) bool { return o.ID == f.ID })
		return
	}
	i, found := slices.BinarySearchFunc(c.attempts, f, func(a attempt, f messages.ContainerFact) int {
		return int(f.Attempt) - int(a.Attempt)
	})
	if !found {
		c.attempts = slices.Insert(c.attempts, i, attempt{ContainerFact: f, noticed: at})
		c.attempts = c.attempts[:min(len(c.attempts), 2)]
		return
	}
	switch known := &c.attempts[i]; {
	case known.ID == f.ID && !behind(f.State, known.State): // else the reading began before this was known
		known.ContainerFact = f
	case known.ID != f.ID && !f.CreatedAt.Before(known.CreatedAt): // else it is of a sandbox that is gone
		*known = attempt{ContainerFact: f, noticed: at}
	}
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
		for _, f := range slices.Backward(c.attempts) {
			if f.State != messages.ContainerExited || f.Attempt < c.ended {
				continue
			}
			c.ended = f.Attempt + 1
			if m.phase != Reading {
				m.emit(Ended{f.ContainerFact})
				m.recordEnd(c, f.ContainerFact)
			}
		}
	}
}

// learn takes the runtime's word on one container, of one that the spec does not have, too.
func (s *state) learn(f messages.ContainerFact, at time.Time) *container {
	c := s.container(f.Name)
	if c == nil {
		c = &container{name: f.Name, stage: messages.StageIdle}
		s.containers = append(s.containers, c)
	}
	c.learn(f, at)
	return c
}

// miss notes containers that a reading lacks: someone removed them.
func (s *state) miss(f messages.PodFacts, now time.Time) {
	listed := map[string]bool{}
	for _, o := range f.Containers {
		listed[o.ID] = true
	}
	for _, c := range s.containers {
		n := c.newest()
		switch {
		case n == nil || listed[n.ID] || n.State == messages.ContainerExited || !n.noticed.Before(f.ReadAt):
		case n.State == messages.ContainerCreated:
			c.attempts = c.attempts[1:] // it never ran: it is as if it had never been
		default:
			n.ContainerFact = n.Removed(now)
			if c.stage == messages.StageStarting {
				c.unread = now // what it was told once more, an actor that fell takes for the first time: that may make another
			}
		}
	}
}

func (s *state) container(name string) *container {
	for _, c := range s.containers {
		if c.name == name {
			return c
		}
	}
	return nil
}

// matchSpec makes the containers those of the spec, keeping what is known by name.
func (s *state) matchSpec() {
	old := s.containers
	s.containers = nil
	add := func(spec *v1.Container, init bool) {
		i := slices.IndexFunc(old, func(c *container) bool { return c != nil && c.name == spec.Name })
		c := &container{name: spec.Name, stage: messages.StageIdle}
		if i >= 0 {
			c, old[i] = old[i], nil
		}
		c.spec, c.init = spec, init
		s.containers = append(s.containers, c)
	}
	for i := range s.pod.Spec.InitContainers {
		add(&s.pod.Spec.InitContainers[i], true)
	}
	for i := range s.pod.Spec.Containers {
		add(&s.pod.Spec.Containers[i], false)
	}
	for i := range s.pod.Spec.EphemeralContainers {
		e := &s.pod.Spec.EphemeralContainers[i]
		add((*v1.Container)(&e.EphemeralContainerCommon), false)
		c := s.containers[len(s.containers)-1]
		c.ephemeral, c.target = true, e.TargetContainerName
	}
	for _, c := range old {
		if c != nil {
			c.spec = nil
			s.containers = append(s.containers, c)
		}
	}
}
