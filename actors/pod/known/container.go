package known

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/pod/restarts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Container is what the pod knows of one container.
type Container struct {
	Name string
	Role
	Order
	History
	Image   Image
	Earlier bool // its newest is of an earlier round: it is ended, and made again
	Backoff restarts.Place
	Retry   restarts.Retry // of the start of this attempt
}

// Image is what is known of the images that the container needs.
type Image struct {
	Attempt uint32
	Ref     string            // of its own image, which is asked for when those of its volumes are there
	Volumes map[string]string // the same of its volumes that are images, by their names
	Reason  *messages.Reason  // why it could not be had
	Awaits  *messages.Reason  // how far its pull is; newer than Reason, where both are there
	Pulling bool              // an Event of its pull was recorded
}

// Role is what the container is in its pod.
type Role struct {
	Spec *v1.Container // nil when the spec no longer has it
	Init bool
	// Ephemeral containers (KEP-277) are started once, whatever becomes of them, and nobody waits for them or goes by their end.
	Ephemeral bool
	Target    string // the container whose processes an ephemeral one shares, where it does
}

// Regular says that the container is one of spec.containers: their ends are the pod's.
func (r *Role) Regular() bool { return r.Spec != nil && !r.Init && !r.Ephemeral }

// Sidecar says that it is an init container that stays (KEP-753).
func (r *Role) Sidecar() bool { return r.Spec != nil && r.Init && translate.RestartsAlways(r.Spec) }

// InRounds says that the container is restarted with the others: all are but ephemeral ones, as with the kubelet.
func (r *Role) InRounds() bool { return r.Spec != nil && !r.Ephemeral }

// Order is what the container's actor was told last, and how far that is known to have come. The stages of a run itself are the
// table of actors/container.
type Order struct {
	stage messages.ContainerStage
	Actor bool // one is there, or is being started
	// Attempt and Generation are those of the latest RunContainer; Sandbox is the one that it named.
	Attempt    uint32
	Generation uint64
	Sandbox    string
	Ends       Ends
}

// Ends is how the actor was asked to end the container.
type Ends struct {
	Grace  time.Duration
	Until  time.Time
	Why    messages.Cause
	Failed string // why the runtime could not end it, the last time; empty: it could, or is at it
}

// stages is every transition of an order. An edge outside it is a bug and fails the pod's actor.
var stages = map[messages.ContainerStage][]messages.ContainerStage{
	messages.StageIdle:     {messages.StageIdle, messages.StageStarting, messages.StageWaiting, messages.StageStopping},
	messages.StageStarting: {messages.StageIdle, messages.StageRunning, messages.StageStopping},
	messages.StageRunning:  {messages.StageIdle, messages.StageWaiting, messages.StageStopping},
	messages.StageWaiting:  {messages.StageIdle, messages.StageStopping},
	messages.StageStopping: {messages.StageIdle},
}

// Stage is where the order is: idle (there is none, or it is over), starting, running, waiting or stopping.
func (o *Order) Stage() messages.ContainerStage { return cmp.Or(o.stage, messages.StageIdle) }

// Ending says that the actor was asked to end the container, be it when its turn has come.
func (o *Order) Ending() bool {
	return o.stage == messages.StageWaiting || o.stage == messages.StageStopping
}

// Enter is the one way from a stage to another.
func (c *Container) Enter(to messages.ContainerStage) {
	if !slices.Contains(stages[c.Stage()], to) {
		panic(fmt.Sprintf("container %s: no edge from %s to %s", c.Name, c.Stage(), to))
	}
	c.stage = to
}

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

// Forget has the images asked for anew.
func (i *Image) Forget() { i.Ref, i.Volumes, i.Reason, i.Awaits = "", nil, nil, nil }

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
			Cause: messages.Cause{Code: messages.CausePostStart, Text: at.Hook.Failed}}
	case kind != "" && c.Stage() == messages.StageStopping:
		r := c.Killing()
		r.Probe, r.Cause.Text = kind, failing.Said
		return r
	case failing.Kind != "":
		return &messages.Reason{
			Code: messages.ReasonUnhealthy, Message: string(failing.Kind) + " probe failed: " + failing.Said, Container: c.Name,
			Since: failing.Since, Probe: failing.Kind, Cause: messages.Cause{Text: failing.Said},
		}
	}
	return nil
}

// Killing is that a container is being ended, and until when it may take.
func (c *Container) Killing() *messages.Reason {
	return &messages.Reason{Code: messages.ReasonKilling, Message: explain.Stopping(c.Name, c.Ends.Why), Container: c.Name,
		Since: c.Ends.Until.Add(-c.Ends.Grace), RetryAt: c.Ends.Until, Cause: messages.Cause{Text: c.Ends.Failed}}
}
