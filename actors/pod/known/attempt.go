package known

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/resources"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

// Attempt is what the pod knows of one attempt of a container.
type Attempt struct {
	messages.ContainerFact
	// noticed is when, by our own clock, it was first known to be there: a later reading that lacks it says that it is gone. The
	// times that the runtime tells are of no use for this, since clocks are set.
	noticed time.Time
	Results messages.ProbeResults
	Failing []messages.FailingProbe // probes
	Hook    Hook
	Given   resources.Given
	Held    bool // its back-off has an Event
	Renew   bool // it is to be ended on request, and started again
}

// History is what is known of the container's attempts.
type History struct {
	Attempts []Attempt // newest first
	Free     uint32    // lowest attempt whose name can be had
	Ended    uint32    // lowest attempt whose end was not noted yet
	Replace  bool      // the newest is being stopped because its spec changed, or on request: its back-off starts anew
	// Unread is since when a start that is not waited for any more may be under way, or may have been made without our
	// knowing: no other attempt is begun, and no sandbox is stopped, before a later reading.
	Unread time.Time
	cutOff cutOff
	// killedFor is the newest container of which the kernel killed a process for want of memory, and killedAt is when.
	killedFor string
	killedAt  time.Time
}

// OutOfMemory notes that the kernel killed a process of this container for want of memory.
func (h *History) OutOfMemory(id string, at time.Time) {
	h.killedFor, h.killedAt = id, at
	for i := range h.Attempts {
		h.Attempts[i].ContainerFact = h.withKill(h.Attempts[i].ContainerFact)
	}
}

// killTime bounds the time between the kernel's kill and the end of the container that it explains. A later SIGKILL has another
// cause.
const killTime = 10 * time.Second

// withKill gives a container that ended by SIGKILL the reason OOMKilled where the kernel killed it for want of memory: containerd
// 1.6 reports its end before it has heard of the kill.
func (h *History) withKill(f messages.ContainerFact) messages.ContainerFact {
	between := h.killedAt.Sub(f.FinishedAt).Abs()
	if f.ID == h.killedFor && f.State == messages.ContainerExited && f.ExitCode == 137 && between < killTime {
		f.Reason = messages.ReasonOOMKilled
	}
	return f
}

// cutOff is the latest of the starts in a row that were cut off.
type cutOff struct {
	id    string
	at    time.Time // of its creation
	tries int
}

// cutOffTries is how many starts in a row are cut off before that is taken for the container's end. A hook of the runtime that
// times out at each start looks as if the caller had given up.
const cutOffTries = 3

// repeats reports whether the container was left of a start that was cut off and is made again, and counts such starts.
func (h *History) repeats(f messages.ContainerFact) bool {
	if !facts.CutOff(f) {
		if !f.StartedAt.IsZero() {
			h.cutOff = cutOff{}
		}
		return false
	}
	if slices.ContainsFunc(h.Attempts, func(o Attempt) bool { return o.ID == f.ID && o.State == messages.ContainerExited }) {
		return false // that is its end
	}
	if last := &h.cutOff; f.ID != last.id && !f.CreatedAt.Before(last.at) {
		*last = cutOff{id: f.ID, at: f.CreatedAt, tries: last.tries + 1}
	}
	return f.ID != h.cutOff.id || h.cutOff.tries < cutOffTries
}

// Hook is what is known of the post-start hook of an attempt.
type Hook struct {
	Known  bool // its actor has told of it
	Done   bool
	Failed string // why it failed; empty: it did not
}

// Newest is the latest attempt; nil where there is none.
func (h *History) Newest() *Attempt {
	if len(h.Attempts) == 0 {
		return nil
	}
	return &h.Attempts[0]
}

// Is says that the newest attempt is this one.
func (h *History) Is(id string) bool { return len(h.Attempts) > 0 && h.Attempts[0].ID == id }

// Exited is the newest attempt when it has ended.
func (h *History) Exited() *Attempt {
	if f := h.Newest(); f != nil && f.State == messages.ContainerExited {
		return f
	}
	return nil
}

// Running says that its newest attempt runs.
func (h *History) Running() bool {
	f := h.Newest()
	return f != nil && f.State == messages.ContainerRunning
}

// Alive says that there is a process to end, as far as is known.
func (h *History) Alive() bool {
	f := h.Newest()
	return f != nil && f.Alive()
}

// MadeIn says that an attempt was made in this sandbox.
func (h *History) MadeIn(sandbox string) bool {
	return slices.ContainsFunc(h.Attempts, func(f Attempt) bool { return f.SandboxID == sandbox })
}

// NextAttempt is the number of the container that is to be made next.
func (h *History) NextAttempt() uint32 {
	if f := h.Newest(); f != nil {
		return max(f.Attempt+1, h.Free)
	}
	return h.Free
}

// Learn takes the CRI's word on one of the container's attempts, at a time of our own clock. A word that is older than what is
// known of the same attempt is not taken. A container whose start was cut off is as if it had never been: the same attempt is
// made again, in its place, and is not counted as a restart. After some tries it has ended.
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
		h.Attempts = slices.Insert(h.Attempts, i, Attempt{ContainerFact: f, noticed: at})
		h.Attempts = h.Attempts[:min(len(h.Attempts), 2)]
		h.Replace = h.Replace && i > 0 // it was meant for the one before; the start of this one was not heard of
		return
	}
	switch known := &h.Attempts[i]; {
	case known.ID == f.ID && !behind(f.State, known.State): // else the reading began before this was known
		known.ContainerFact = f
	case known.ID != f.ID && !f.CreatedAt.Before(known.CreatedAt): // else it is of a sandbox that is gone
		*known = Attempt{ContainerFact: f, noticed: at}
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

// HookEnded says that the newest container's post-start hook has ended, where it has one.
func (c *Container) HookEnded() bool {
	f := c.Newest()
	return !HasPostStart(c.Spec) || f == nil || f.Hook.Done
}

// HasPostStart says that a container has a post-start hook.
func HasPostStart(spec *v1.Container) bool {
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil
}

// Results are those of the container that is the newest: of another, nothing counts.
func (h *History) Results() messages.ProbeResults {
	if f := h.Newest(); f != nil {
		return f.Results
	}
	return messages.ProbeResults{}
}

// Probed says that a container has probes; only those that stay up have.
func Probed(spec *v1.Container) bool {
	return spec != nil && (spec.StartupProbe != nil || spec.ReadinessProbe != nil || spec.LivenessProbe != nil)
}

// HasStarted says that the container runs and is up for others: its post-start hook has ended and its startup probe has
// succeeded, where it has them.
func (c *Container) HasStarted() bool {
	return c.Running() && c.HookEnded() && (c.Spec == nil || c.Spec.StartupProbe == nil ||
		c.Results().Startup == messages.ProbeSucceeded)
}

// IsReady says that the container has started and that its readiness probe agrees, where it has one.
func (c *Container) IsReady() bool {
	return c.HasStarted() && (c.Spec == nil || c.Spec.ReadinessProbe == nil || c.Results().Readiness == messages.ProbeSucceeded)
}

// Unfit is the kind of the probe by which the container must end; empty when it need not.
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
