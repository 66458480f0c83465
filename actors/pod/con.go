package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/cri"
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
	free    uint32                   // lowest attempt whose name can be had
	turn    uint64                   // of the latest RunContainer
	told    string                   // the sandbox of the latest RunContainer
	// loose is since when a start that is not waited for any more may be under way, or may have been made without our
	// knowing: no other attempt is begun, and no sandbox is stopped, before a later reading has told.
	loose time.Time
	image struct {
		attempt uint32
		ref     string
		reason  *messages.Reason // why it could not be had
		awaits  *messages.Reason // how far its pull is; told later than reason, where both are there
		pulling bool             // an event was told of its pull
	}
	backoff backoff
	proved  proved
	hooked  hooked
	ends    struct { // as its actor was asked to end it
		grace time.Duration
		until time.Time
		why   string
	}
	held    string                  // the ID of the end of which an event was told that it is backed off from
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

func (c *con) sidecar() bool { return c.spec != nil && c.init && cri.RestartsAlways(c.spec) }

// over says that the container has ended and will not be started again.
func (c *con) over(pod *v1.Pod) bool {
	f := c.exited()
	return f != nil && c.spec != nil && !c.replace && c.answer(pod, *f) != restart
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
