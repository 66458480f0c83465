// Package known holds the state of a pod for its machine: its sandboxes, its containers and their attempts, and the results that
// follow from these alone. The machine decides the actions.
package known

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// State is the state of a pod.
type State struct {
	Set        settings.Settings   // of the node
	Wanted     *messages.PodWanted // nil: unknown, and so is Pod
	Pod        *v1.Pod
	Started    time.Time        // the pod's start time, as reported
	active     time.Time        // the start of its activeDeadlineSeconds, by this process's clock; see Deadline
	Verdict    *Verdict         // the result of a pod that ended by itself, or nil
	NoPlace    *messages.Reason // why the node has no place for a volume of the pod, which has not run; nil: it has one
	Sandboxes  Sandboxes
	Containers []*Container // in order: init, regular, ephemeral containers, then the ones that the spec no longer has
}

// Container returns the container of this name, or nil.
func (s *State) Container(name string) *Container {
	for _, c := range s.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (s *State) newContainer(name string) *Container {
	return &Container{Name: name, Backoff: backoff.Restarts{Policy: s.Set.BackOff}}
}

// MatchSpec replaces the containers by the spec's. It keeps the state of containers with the same name.
func (s *State) MatchSpec() {
	old := s.Containers
	s.Containers = nil
	add := func(r Role) {
		i := slices.IndexFunc(old, func(c *Container) bool { return c != nil && c.Name == r.Spec.Name })
		c := s.newContainer(r.Spec.Name)
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

// Learn records the runtime's report on one container, even if the spec does not have it.
func (s *State) Learn(f messages.ContainerFact, at time.Time) *Container {
	c := s.Container(f.Name)
	if c == nil {
		c = s.newContainer(f.Name)
		s.Containers = append(s.Containers, c)
	}
	c.Learn(f, at)
	return c
}

// Miss handles containers that a reading lacks: they were removed from outside.
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
			c.Attempts = c.Attempts[1:] // it never ran: it counts as never created
		default:
			n.set(n.Removed(now), now)
			if c.Stage() == messages.StageStarting {
				c.Unread = now // an actor that was restarted with the order to create it may create another
			}
		}
	}
}

// Passed reports whether a later init container was created in the current sandbox: initialization is past this one.
func (s *State) Passed(i int) bool {
	current := s.Current()
	return current != nil && slices.ContainsFunc(s.Containers[i+1:], func(c *Container) bool {
		return c.Init && !c.Earlier && c.MadeIn(current.ID)
	})
}

// Initialized reports whether an init container has succeeded in the current sandbox. A later init container, or a regular one,
// that was created there proves it, even if the runtime no longer has the container.
func (s *State) Initialized(c *Container) bool {
	current, f := s.Current(), c.Exited()
	if c.Sidecar() || current == nil {
		return false
	}
	return s.Begun(current.ID) || s.Passed(slices.Index(s.Containers, c)) ||
		f != nil && f.ExitCode == 0 && f.SandboxID == current.ID && !c.Earlier
}

// Begun reports whether a regular container was created in the sandbox, so that all init containers have succeeded in it, even if
// the collector has removed them since.
func (s *State) Begun(sandbox string) bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool {
		return !c.Init && !c.Ephemeral && !c.Earlier && c.MadeIn(sandbox)
	})
}

// NextInit returns the init container that has to run next, or nil if initialization is complete.
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

// TargetID returns the ID of the running container with which an ephemeral one shares processes, or "".
func (s *State) TargetID(c *Container) string {
	if t := s.Container(c.Target); t != nil && t.Running() {
		return t.Newest().ID
	}
	return ""
}

// HasRun reports whether a regular container is known to have started.
func (s *State) HasRun() bool {
	return slices.ContainsFunc(s.Containers, func(c *Container) bool {
		return c.Regular() && slices.ContainsFunc(c.Attempts, func(f Attempt) bool { return !f.StartedAt.IsZero() })
	})
}
