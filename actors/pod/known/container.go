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
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// Container is the state of one container.
type Container struct {
	Name string
	Role
	Order
	History
	Image   Image
	Earlier bool             // its newest attempt belongs to an earlier round: it is ended, and created again
	Backoff backoff.Restarts // of the newest attempt
	Retry   restarts.Retry   // of the start of this attempt
}

// Image is the state of the images that the container needs.
type Image struct {
	Attempt uint32
	Ref     string            // of its own image, which is requested after the images of its volumes
	Volumes map[string]string // of its image volumes, by volume name
	Reason  *messages.Reason  // the cause of the last failure
	Awaits  *messages.Reason  // the progress of the pull; newer than Reason if both are set
	Pulling bool              // an Event of its pull was recorded
}

// Role is the container's role in its pod.
type Role struct {
	Spec *v1.Container // nil if the spec no longer has it
	Init bool
	// Ephemeral containers (KEP-277) start once. Nothing waits for them or depends on their end.
	Ephemeral bool
	Target    string // the container with which an ephemeral one shares processes, if any
}

// Regular reports whether the container is one of spec.containers, which decide the end of the pod.
func (r *Role) Regular() bool { return r.Spec != nil && !r.Init && !r.Ephemeral }

// Sidecar reports whether it is an init container that keeps running (KEP-753).
func (r *Role) Sidecar() bool { return r.Spec != nil && r.Init && translate.RestartsAlways(r.Spec) }

// InRounds reports whether the container is restarted with the others: all but ephemeral ones, as with the kubelet.
func (r *Role) InRounds() bool { return r.Spec != nil && !r.Ephemeral }

// Order is the last order to the container's actor and its known progress. The stages of a run itself are the table of
// actors/container.
type Order struct {
	stage messages.ContainerStage
	Actor bool // it exists or is being started
	// Sent and Exits are the order and the strategy that its supervisor has. Sent is nil if there is no order.
	Sent  any
	Exits exits.Strategy
	// Attempt, Generation and Sandbox are those in the latest RunContainer.
	Attempt    uint32
	Generation uint64
	Sandbox    string
	Ends       Termination
}

// Termination is the mode in which the actor has to end the container.
type Termination struct {
	Grace  time.Duration
	Until  time.Time
	Why    messages.Cause
	Failed string // the runtime's last failure to end it; empty: none
}

// stages are all transitions of an order. Any other is a bug and fails the pod's actor.
var stages = map[messages.ContainerStage][]messages.ContainerStage{
	messages.StageIdle:     {messages.StageIdle, messages.StageStarting, messages.StageWaiting, messages.StageStopping},
	messages.StageStarting: {messages.StageIdle, messages.StageRunning, messages.StageStopping},
	messages.StageRunning:  {messages.StageIdle, messages.StageWaiting, messages.StageStopping},
	messages.StageWaiting:  {messages.StageIdle, messages.StageStopping},
	messages.StageStopping: {messages.StageIdle},
}

// Stage returns the stage of the order: idle (there is none, or it is over), starting, running, waiting or stopping.
func (o *Order) Stage() messages.ContainerStage { return cmp.Or(o.stage, messages.StageIdle) }

// Ending reports whether the actor has the order to end the container, now or in its turn.
func (o *Order) Ending() bool {
	return o.stage == messages.StageWaiting || o.stage == messages.StageStopping
}

// Enter is the only way from one stage to another.
func (c *Container) Enter(to messages.ContainerStage) {
	if !slices.Contains(stages[c.Stage()], to) {
		panic(fmt.Sprintf("container %s: no edge from %s to %s", c.Name, c.Stage(), to))
	}
	c.stage = to
}

// Over reports whether the container has ended and will not start again. The end of an attempt before the last ordered one does
// not count.
func (c *Container) Over(pod *v1.Pod) bool {
	f := c.Exited()
	return f != nil && c.Spec != nil && !c.Replace && f.Attempt >= c.Attempt &&
		c.Verdict(pod, &f.ContainerFact) != messages.ExitRestarts
}

// Strategy returns the supervision strategy of the container's actor. A container that was ended for a failed probe has failed,
// whatever its exit code. One of an earlier round is created again.
func (c *Container) Strategy(pod *v1.Pod) exits.Strategy {
	s := c.policy(pod, c.Unfit() != "")
	s.Run = c.Attempt
	return s
}

// Verdict returns the verdict on the end of one of the container's attempts, by the same strategy.
func (c *Container) Verdict(pod *v1.Pod, f *messages.ContainerFact) messages.ExitVerdict {
	return c.policy(pod, c.Is(f.ID) && c.Unfit() != "").Verdict(f.Exit())
}

func (c *Container) policy(pod *v1.Pod, unfit bool) exits.Strategy {
	switch {
	case c.Spec == nil || c.Ephemeral:
		return exits.Strategy{Restart: exits.Temporary}
	case c.Earlier, unfit && translate.RestartPolicy(&pod.Spec, c.Spec) != v1.RestartPolicyNever:
		return exits.Strategy{Restart: exits.Permanent}
	}
	return restarts.Strategy(pod, c.Spec, c.Init)
}

// Forget resets the images, which are requested again.
func (i *Image) Forget() { i.Ref, i.Volumes, i.Reason, i.Awaits = "", nil, nil, nil }

// Awaits returns the progress of the image pull while the container waits for it. It is not a failure.
func (c *Container) Awaits() *messages.Reason {
	if c.Spec == nil || c.Running() || c.Image.Ref != "" {
		return nil
	}
	return c.Image.Awaits
}

// Unhealthy returns the failing probe for which a running container has not started, is not ready, or is being ended.
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

// Killing returns the reason of a container that is being ended, with its deadline.
func (c *Container) Killing() *messages.Reason {
	return &messages.Reason{Code: messages.ReasonKilling, Message: explain.Stopping(c.Name, c.Ends.Why), Container: c.Name,
		Since: c.Ends.Until.Add(-c.Ends.Grace), RetryAt: c.Ends.Until, Cause: messages.Cause{Text: c.Ends.Failed}}
}
