package known

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Container is what the pod knows of one container. The states of a run are in the table of actors/container; here is what
// was sent to its actor last, and what the actor answered.
type Container struct {
	Name string
	Spec *v1.Container // nil when the spec no longer has it
	Init bool
	// Ephemeral containers (KEP-277) are started once, whatever becomes of them, and nobody waits for them or goes by their end.
	Ephemeral bool
	Target    string // the container whose processes an ephemeral one shares, where it does
	// Stage is the actor's, as ordered or as reported: idle, starting, running or stopping.
	Stage    messages.ContainerStage
	Actor    bool      // an actor is there, or is being started
	Attempts []Attempt // newest first
	// Attempt and Generation are those of the latest RunContainer; Sandbox is the one that it named.
	Attempt    uint32
	Generation uint64
	Sandbox    string
	Free       uint32 // lowest attempt whose name can be had
	Ended      uint32 // lowest attempt whose end was not noted yet
	// Unread is since when a start that is not waited for any more may be under way, or may have been made without our
	// knowing: no other attempt is begun, and no sandbox is stopped, before a later reading.
	Unread time.Time
	Image  struct {
		Attempt uint32
		Ref     string            // of its own image, which is asked for when those of its volumes are there
		Volumes map[string]string // the same of its volumes that are images, by their names
		Reason  *messages.Reason  // why it could not be had
		Awaits  *messages.Reason  // how far its pull is; newer than Reason, where both are there
		Pulling bool              // an Event of its pull was recorded
	}
	Earlier bool // its newest is of an earlier round: it is ended, and made again
	Backoff restarts.Place
	Ends    struct { // as its actor was asked to end it
		Grace    time.Duration
		Until    time.Time
		Why      string
		HookOnly bool   // its signal waits for its turn
		Failed   string // why the runtime could not end it, the last time; empty: it could, or is at it
	}
	Retry   restarts.Retry // of the start of this attempt
	Replace bool           // it is being stopped because its spec changed, or on request: its back-off starts anew
}

// Regular says that the container is one of spec.containers: their ends are the pod's.
func (c *Container) Regular() bool { return c.Spec != nil && !c.Init && !c.Ephemeral }

// Sidecar says that it is an init container that stays (KEP-753).
func (c *Container) Sidecar() bool {
	return c.Spec != nil && c.Init && translate.RestartsAlways(c.Spec)
}

// InRounds says that the container is restarted with the others: all are but ephemeral ones, as with the kubelet.
func (c *Container) InRounds() bool { return c.Spec != nil && !c.Ephemeral }

// Over says that the container has ended and will not be started again. An end that came before the attempt that was ordered last
// says nothing of that one.
func (c *Container) Over(pod *v1.Pod) bool {
	f := c.Exited()
	return f != nil && c.Spec != nil && !c.Replace && f.Attempt >= c.Attempt && c.Answer(pod, f.ContainerFact) != restarts.Again
}

// Answer is what follows the end of a container. One that was ended since a probe found it unfit has failed, whatever its
// exit code says.
func (c *Container) Answer(pod *v1.Pod, f messages.ContainerFact) restarts.Answer {
	switch {
	case c.Ephemeral:
		return restarts.Leave
	case c.Earlier:
		return restarts.Again
	}
	failed := c.Is(f.ID) && c.Unfit() != "" && translate.RestartPolicy(&pod.Spec, c.Spec) != v1.RestartPolicyNever
	if a := restarts.ByPolicy(pod, c.Spec, c.Init, f); a != restarts.Leave || !failed {
		return a
	}
	return restarts.Again
}

// NextAttempt is the number of the container that is to be made next.
func (c *Container) NextAttempt() uint32 {
	if f := c.Newest(); f != nil {
		return max(f.Attempt+1, c.Free)
	}
	return c.Free
}

// NoImage forgets what is known of the images that the container needs.
func (c *Container) NoImage() {
	c.Image.Ref, c.Image.Volumes, c.Image.Reason, c.Image.Awaits = "", nil, nil, nil
}

// Awaits is how far the pull of the image is, while that is what the container waits for. It is nothing that went wrong.
func (c *Container) Awaits() *messages.Reason {
	if c.Spec == nil || c.Running() || c.Image.Ref != "" {
		return nil
	}
	return c.Image.Awaits
}

// Unhealthy is why a container that runs has not started for others, is not ready, or is ended: a probe that fails.
func (c *Container) Unhealthy() *messages.Reason {
	if c.Spec == nil || !c.Running() {
		return nil
	}
	at, kind, failing := c.Newest(), c.Unfit(), messages.FailingProbe{}
	for _, f := range at.Failing {
		counts := f.Kind != messages.Liveness && *at.Results.Of(f.Kind) != messages.ProbeSucceeded
		if f.Kind == kind || kind == "" && counts {
			failing = f
		}
	}
	switch {
	case kind == "" && at.Hook.Failed != "":
		return &messages.Reason{Code: messages.ReasonKilling, Container: c.Name,
			Cause: messages.PostStartFailed + at.Hook.Failed}
	case kind != "" && c.Stage == messages.StageStopping:
		r := c.Killing()
		r.Probe, r.Cause = kind, failing.Said
		return r
	case failing.Kind != "":
		return &messages.Reason{
			Code: messages.ReasonUnhealthy, Message: string(failing.Kind) + " probe failed: " + failing.Said, Container: c.Name,
			Since: failing.Since, Probe: failing.Kind, Cause: failing.Said,
		}
	}
	return nil
}

// Killing is that a container is being ended, and until when it may take.
func (c *Container) Killing() *messages.Reason {
	return &messages.Reason{Code: messages.ReasonKilling, Message: c.Ends.Why, Container: c.Name,
		Since: c.Ends.Until.Add(-c.Ends.Grace), RetryAt: c.Ends.Until, Cause: c.Ends.Failed}
}
