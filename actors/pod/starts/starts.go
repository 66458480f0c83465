// Package starts says whether a container may start now, and what it lacks otherwise.
package starts

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// Lack is what keeps a container from its start.
type Lack string

// What there is to lack.
const (
	Nothing    Lack = ""
	Reason     Lack = "a reason to run" // it has ended for good
	Certainty  Lack = "a known state"   // it is ended before it is started again
	BackingOff Lack = "the end of its back-off"
	Actor      Lack = "an actor"
	Image      Lack = "its image"
	AnotherTry Lack = "the end of the pause after a failed start"
	Earlier    Lack = "the end of an earlier container's start"
	Target     Lack = "the container whose processes it is to share"
	Reading    Lack = "a reading that shows what the latest start made"
	End        Lack = "the end of the pod, which nothing is started before" // a sidecar that has ended
)

// Pod is the pod with what is asked of it.
type Pod struct {
	*known.State
	Now time.Time
	// Due says that a container is to start in the pod's phase.
	Due func(*known.Container) bool
	// Spawning is until when the word of the start of a container's actor is awaited, where it is.
	Spawning func(container string) (until time.Time, awaited bool)
}

// Lacks is the one place that says whether a container may start now: nothing keeps it, or what it lacks, and until when, where
// that is known.
func (p *Pod) Lacks(c *known.Container) (Lack, time.Time) {
	what, until := p.lacksItself(c)
	switch {
	case what == Nothing && p.waitsInLine(c):
		what = Earlier
	case what == Nothing && c.Sidecar() && c.Exited() != nil && p.endsSoon():
		what = End
	}
	return what, until
}

// endsSoon says that the pod is about to be over by itself: no regular container will be started again, and those that run are
// being stopped, by a probe that failed. The kubelet does nothing else meanwhile, however long a pre-stop hook takes.
func (p *Pod) endsSoon() bool {
	return !slices.ContainsFunc(p.Containers, func(c *known.Container) bool {
		last := c.Stage() == messages.StageStopping && p.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && !c.Replace
		return c.Regular() && !c.Over(p.Pod) && (!last || c.Spec.RestartPolicy != nil)
	})
}

// lacksItself is the same, whatever the other containers do.
func (p *Pod) lacksItself(c *known.Container) (Lack, time.Time) {
	f := c.Newest()
	if f != nil && f.State == messages.ContainerUnknown {
		return Certainty, time.Time{}
	}
	if f = c.Exited(); c.Spec == nil || f != nil && c.Over(p.Pod) && !p.redo(c, f) {
		return Reason, time.Time{}
	}
	stands, next := p.Standing(c), c.NextAttempt()
	if f != nil && next != c.Attempt { // where it was ordered before, its back-off is over
		if at := p.RestartTime(p.Now, c, f.FinishedAt); at.After(p.Now) {
			return BackingOff, at
		}
	}
	_, spawning := p.Spawning(c.Name)
	switch {
	case !c.Actor || spawning:
		return Actor, time.Time{}
	case p.Now.Before(c.Retry.At):
		return AnotherTry, c.Retry.At
	case stands == nil && (c.Image.Attempt != next || c.Image.Ref == ""):
		return Image, time.Time{}
	case stands == nil && c.Target != "" && p.TargetID(c) == "":
		return Target, time.Time{}
	case stands == nil && next != c.Attempt && !c.Unread.IsZero():
		return Reading, time.Time{}
	}
	return Nothing, time.Time{}
}

// redo says that an init container that succeeded must run again, since it did so in another sandbox.
func (p *Pod) redo(c *known.Container, f *known.Attempt) bool {
	current := p.Current()
	return c.Init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// waitsInLine says that the start of another regular container has to end before that of c may begin. As with the kubelet,
// regular containers start in the spec's order, one after another. A start goes from the pull of the image to the end of the
// post-start hook. A container that runs already is adopted, which waits for nothing.
func (p *Pod) waitsInLine(c *known.Container) bool {
	before := p.Containers[:slices.Index(p.Containers, c)]
	return c.Regular() && !c.Running() && slices.ContainsFunc(before, func(e *known.Container) bool {
		return e.Regular() && p.beingStarted(e)
	})
}

// beingStarted says that a start of the container is under way. One that has failed is over until the container is tried again:
// it keeps nobody waiting, nor does a container that waits for the end of its back-off.
func (p *Pod) beingStarted(c *known.Container) bool {
	if c.Stage() != messages.StageIdle {
		return c.Stage() == messages.StageStarting
	}
	switch what, _ := p.lacksItself(c); what {
	case Actor:
		at, awaited := p.Spawning(c.Name)
		return awaited && !at.After(p.Now.Add(p.Set.AnswerTimeout))
	case Image:
		return c.Image.Reason == nil || c.Image.Awaits != nil
	case Reading, Nothing:
		return true
	case Reason, Certainty, BackingOff, AnotherTry, Target, Earlier, End:
	}
	return false
}

// Hold is what keeps one container from starting, where something does.
func (p *Pod) Hold(c *known.Container) *messages.Reason {
	switch {
	case c.Spec == nil || c.Running():
		return nil
	case c.Image.Reason != nil && c.Image.Ref == "":
		return c.Image.Reason
	case c.Retry.Failed != nil:
		return c.Retry.Failed
	case c.Stage() != messages.StageStarting && p.Due(c) && c.Backoff.Step > 0:
		what, at := p.Lacks(c)
		if what != BackingOff {
			return nil
		}
		end := c.Exited()
		r := &messages.Reason{
			Code: messages.ReasonCrashLoopBackOff, RetryAt: at, Container: c.Name, Since: end.FinishedAt, Tries: int(end.Attempt),
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", p.Set.BackOff.Wait(c.Backoff.Step),
				c.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID),
		}
		if end.Hook.Failed != "" {
			r.Cause = messages.Cause{Code: messages.CausePostStart, Text: end.Hook.Failed}
		}
		for _, f := range end.Failing {
			if f.Kind == c.Unfit() {
				r.Probe, r.Cause = f.Kind, messages.Cause{Text: f.Said}
			}
		}
		return r
	}
	return nil
}
