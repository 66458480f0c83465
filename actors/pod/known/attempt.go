package known

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

// Attempt is the state of one attempt of a container.
type Attempt struct {
	messages.ContainerFact
	// noticed is when the attempt was first known, by our own clock: if a later reading lacks it, it is gone. The runtime's times
	// are of no use for this, since clocks may be set.
	noticed time.Time
	// EndedAt is when it ended, by our own clock; zero while it has not.
	EndedAt time.Time
	Results messages.ProbeResults
	Failing []messages.FailingProbe // probes
	Hook    Hook
	Given   resources.AttemptState
	Held    bool // its back-off has an Event
	Renew   bool // it has to be ended at a user's request, and started again
}

// History is the state of the container's attempts.
type History struct {
	Attempts []Attempt // newest first
	Free     uint32    // lowest attempt with an available name
	Ended    uint32    // lowest attempt without a logged end
	Replace  bool      // the newest is being stopped for a change of its spec, or at a user's request: its back-off is reset
	// Unread is set since a start that is not waited for may be in progress, or may have succeeded unnoticed. No other attempt
	// begins, and no sandbox is stopped, before a later reading.
	Unread time.Time
	cutOff cutOff
	// killedFor is the newest container with a process that the kernel killed for lack of memory, at killedAt.
	killedFor string
	killedAt  time.Time
}

// OutOfMemory records that the kernel killed a process of this container for lack of memory.
func (h *History) OutOfMemory(id string, at time.Time) {
	h.killedFor, h.killedAt = id, at
	for i := range h.Attempts {
		h.Attempts[i].ContainerFact = h.withKill(h.Attempts[i].ContainerFact)
	}
}

// killTime bounds the time between the kernel's kill and the end of the container that it explains. A later SIGKILL has another
// cause.
const killTime = 10 * time.Second

// withKill sets the reason OOMKilled of a container that ended by SIGKILL after the kernel killed it for lack of memory:
// containerd 1.6 may report the end before it knows of the kill.
func (h *History) withKill(f messages.ContainerFact) messages.ContainerFact {
	between := h.killedAt.Sub(f.FinishedAt).Abs()
	if f.ID == h.killedFor && f.State == messages.ContainerExited && f.ExitCode == 137 && between < killTime {
		f.Reason = messages.ReasonOOMKilled
	}
	return f
}

// cutOff is the latest of the interrupted starts in a row.
type cutOff struct {
	id    string
	at    time.Time // of its creation
	tries int
}

// cutOffTries is the number of interrupted starts in a row that count as the container's end. A hook of the runtime that times
// out at each start looks as if the caller had given up.
const cutOffTries = 3

// repeats reports whether the container is the rest of an interrupted start and is created again, and counts such starts.
func (h *History) repeats(f messages.ContainerFact) bool {
	if !facts.CutOff(f) {
		if !f.StartedAt.IsZero() {
			h.cutOff = cutOff{}
		}
		return false
	}
	if slices.ContainsFunc(h.Attempts, func(o Attempt) bool { return o.ID == f.ID && o.State == messages.ContainerExited }) {
		return false // this one has already ended
	}
	if last := &h.cutOff; f.ID != last.id && !f.CreatedAt.Before(last.at) {
		*last = cutOff{id: f.ID, at: f.CreatedAt, tries: last.tries + 1}
	}
	return f.ID != h.cutOff.id || h.cutOff.tries < cutOffTries
}

// Hook is the state of the post-start hook of an attempt.
type Hook struct {
	Known  bool // its actor has reported it
	Done   bool
	Failed string // the cause of its failure; empty: none
}

// Newest returns the latest attempt, or nil.
func (h *History) Newest() *Attempt {
	if len(h.Attempts) == 0 {
		return nil
	}
	return &h.Attempts[0]
}

// Is reports whether this is the newest attempt.
func (h *History) Is(id string) bool { return len(h.Attempts) > 0 && h.Attempts[0].ID == id }

// Exited returns the newest attempt if it has ended, or nil.
func (h *History) Exited() *Attempt {
	if f := h.Newest(); f != nil && f.State == messages.ContainerExited {
		return f
	}
	return nil
}

// Running reports whether the newest attempt runs.
func (h *History) Running() bool {
	f := h.Newest()
	return f != nil && f.State == messages.ContainerRunning
}

// Alive reports whether there may be a process to end.
func (h *History) Alive() bool {
	f := h.Newest()
	return f != nil && f.Alive()
}

// MadeIn reports whether an attempt was created in this sandbox.
func (h *History) MadeIn(sandbox string) bool {
	return slices.ContainsFunc(h.Attempts, func(f Attempt) bool { return f.SandboxID == sandbox })
}

// NextAttempt returns the number of the next container.
func (h *History) NextAttempt() uint32 {
	if f := h.Newest(); f != nil {
		return max(f.Attempt+1, h.Free)
	}
	return h.Free
}

// Learn records the CRI's report on one of the container's attempts, at a time of our own clock. Outdated reports are ignored. A
// container with an interrupted start counts as never created: the same attempt is created again in its place, which is no
// restart. After some tries it counts as ended.
func (h *History) Learn(f messages.ContainerFact, at time.Time) {
	f = h.withKill(f)
	if h.repeats(f) {
		h.Attempts = slices.DeleteFunc(h.Attempts, func(o Attempt) bool { return o.ID == f.ID })
		return
	}
	i, found := slices.BinarySearchFunc(h.Attempts, f, func(a Attempt, f messages.ContainerFact) int {
		return int(f.Attempt) - int(a.Attempt)
	})
	if !found {
		h.Attempts = slices.Insert(h.Attempts, i, newAttempt(f, at))
		h.Attempts = h.Attempts[:min(len(h.Attempts), 2)]
		h.Replace = h.Replace && i > 0 // it applied to the attempt before; the report of this start was lost
		return
	}
	switch known := &h.Attempts[i]; {
	case known.ID == f.ID && !behind(f.State, known.State): // otherwise the reading is outdated
		known.set(f, at)
	case known.ID != f.ID && !f.CreatedAt.Before(known.CreatedAt): // otherwise it belongs to a lost sandbox
		*known = newAttempt(f, at)
	}
}

func newAttempt(f messages.ContainerFact, at time.Time) Attempt {
	a := Attempt{noticed: at}
	a.set(f, at)
	return a
}

// set records a report on the attempt.
func (a *Attempt) set(f messages.ContainerFact, at time.Time) {
	a.ContainerFact = f
	if f.State == messages.ContainerExited && a.EndedAt.IsZero() {
		a.EndedAt = Anchor(f.FinishedAt, at)
	}
}

// behind reports whether a container's reported state is older than the known one: an end is final, and created precedes running.
// A runtime that comes back may have lost the state of a running container, and may recover it.
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

// HookEnded reports whether the newest container has no post-start hook in progress.
func (c *Container) HookEnded() bool {
	f := c.Newest()
	return !HasPostStart(c.Spec) || f == nil || f.Hook.Done
}

// HasPostStart reports whether a container has a post-start hook.
func HasPostStart(spec *v1.Container) bool {
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}

// Results returns the results of the newest attempt. Results of others do not count.
func (h *History) Results() messages.ProbeResults {
	if f := h.Newest(); f != nil {
		return f.Results
	}
	return messages.ProbeResults{}
}

// Probed reports whether a container has probes; only containers that stay up have.
func Probed(spec *v1.Container) bool {
	return spec != nil && (spec.StartupProbe != nil || spec.ReadinessProbe != nil || spec.LivenessProbe != nil)
}

// HasStarted reports whether the container runs and has started: its post-start hook has ended and its startup probe has
// succeeded, if it has them.
func (c *Container) HasStarted() bool {
	return c.Running() && c.HookEnded() && (c.Spec == nil || c.Spec.StartupProbe == nil ||
		c.Results().Startup == messages.ProbeSucceeded)
}

// IsReady reports whether the container has started and its readiness probe, if any, has succeeded.
func (c *Container) IsReady() bool {
	return c.HasStarted() && (c.Spec == nil || c.Spec.ReadinessProbe == nil || c.Results().Readiness == messages.ProbeSucceeded)
}

// Unfit returns the kind of the failed probe for which the container must end, or "".
func (c *Container) Unfit() messages.ProbeKind {
	if c.Spec == nil {
		return ""
	}
	for _, kind := range []messages.ProbeKind{messages.Liveness, messages.Startup} {
		if r := c.Results(); messages.Probe(c.Spec, kind) != nil && *r.Of(kind) == messages.ProbeFailed {
			return kind
		}
	}
	return ""
}
