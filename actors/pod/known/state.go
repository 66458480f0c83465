// Package known is what a pod's machine knows of the pod: its sandboxes, its containers and their attempts, and what follows from
// these alone. What is to be done about it is the machine's to say.
package known

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/messages"
)

// State is what is known of a pod.
type State struct {
	Set        settings.Settings   // of the node
	Wanted     *messages.PodWanted // nil: that is not known, nor is Pod
	Pod        *v1.Pod
	Started    time.Time // the pod's start time
	Verdict    *Verdict  // how the pod ended by itself; nil: it did not
	Sandboxes  Sandboxes
	Containers []*Container // in order: init, regular, ephemeral containers, then those that are no longer in the spec
}

// Container is the one of this name; nil where there is none.
func (s *State) Container(name string) *Container {
	for _, c := range s.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// MatchSpec makes the containers those of the spec, keeping what is known by name.
func (s *State) MatchSpec() {
	old := s.Containers
	s.Containers = nil
	add := func(r Role) {
		i := slices.IndexFunc(old, func(c *Container) bool { return c != nil && c.Name == r.Spec.Name })
		c := &Container{Name: r.Spec.Name}
		if i >= 0 {
			c, old[i] = old[i], nil
		}
		c.Role = r
		s.Containers = append(s.Containers, c)
	}
	for i := range s.Pod.Spec.InitContainers {
		add(Role{Spec: &s.Pod.Spec.InitContainers[i], Init: true})
	}
	for i := range s.Pod.Spec.Containers {
		add(Role{Spec: &s.Pod.Spec.Containers[i]})
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		e := &s.Pod.Spec.EphemeralContainers[i]
		add(Role{Spec: (*v1.Container)(&e.EphemeralContainerCommon), Ephemeral: true, Target: e.TargetContainerName})
	}
	for _, c := range old {
		if c != nil {
			c.Spec = nil
			s.Containers = append(s.Containers, c)
		}
	}
}

// Learn takes the runtime's word on one container, of one that the spec does not have, too.
func (s *State) Learn(f messages.ContainerFact, at time.Time) *Container {
	c := s.Container(f.Name)
	if c == nil {
		c = &Container{Name: f.Name}
		s.Containers = append(s.Containers, c)
	}
	c.Learn(f, at)
	return c
}

// Miss notes containers that a reading lacks: someone removed them.
func (s *State) Miss(f messages.PodFacts, now time.Time) {
	listed := map[string]bool{}
	for _, o := range f.Containers {
		listed[o.ID] = true
	}
	for _, c := range s.Containers {
		n := c.Newest()
		switch {
		case n == nil || listed[n.ID] || n.State == messages.ContainerExited || !n.noticed.Before(f.ReadAt):
		case n.State == messages.ContainerCreated:
			c.Attempts = c.Attempts[1:] // it never ran: it is as if it had never been
		default:
			n.ContainerFact = n.Removed(now)
			if c.Stage() == messages.StageStarting {
				c.Unread = now // what it was told once more, an actor that fell takes for the first time: that may make another
			}
		}
	}
}

// Passed says that a later init container has been made in the current sandbox: initialization is past this one.
func (s *State) Passed(i int) bool {
	current := s.Current()
	return current != nil && slices.ContainsFunc(s.Containers[i+1:], func(c *Container) bool {
		return c.Init && !c.Earlier && c.MadeIn(current.ID)
	})
}

// Initialized reports whether an init container has succeeded in the current sandbox. A later init container, or a regular one,
// that was made there proves it, even where the runtime no longer has the container.
func (s *State) Initialized(c *Container) bool {
	current, f := s.Current(), c.Exited()
	if c.Sidecar() || current == nil {
		return false
	}
	return s.Begun(current.ID) || s.Passed(slices.Index(s.Containers, c)) ||
		f != nil && f.ExitCode == 0 && f.SandboxID == current.ID && !c.Earlier
}

// Begun says that a regular container has been made in the sandbox, so that all init containers have succeeded in it,
// even where the collector has removed them since.
func (s *State) Begun(sandbox string) bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool {
		return !c.Init && !c.Ephemeral && !c.Earlier && c.MadeIn(sandbox)
	})
}

// NextInit is the init container whose turn it is, or nil when the others' is.
func (s *State) NextInit() *Container {
	for i, c := range s.Containers {
		if c.Spec == nil || !c.Init || s.Initialized(c) || (c.Sidecar() && s.Passed(i)) {
			continue
		}
		if current := s.Current(); c.Sidecar() && current != nil &&
			(s.Begun(current.ID) || (c.HasStarted() && c.Newest().SandboxID == current.ID && !c.Earlier)) {
			continue
		}
		return c
	}
	return nil
}

// TargetID is the ID of the container whose processes an ephemeral one shares, while that runs; else empty.
func (s *State) TargetID(c *Container) string {
	if t := s.Container(c.Target); t != nil && t.Running() {
		return t.Newest().ID
	}
	return ""
}

// HasRun says that a regular container was started once, as far as is known.
func (s *State) HasRun() bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool {
		return c.Regular() && slices.ContainsFunc(c.Attempts, func(f Attempt) bool { return !f.StartedAt.IsZero() })
	})
}
