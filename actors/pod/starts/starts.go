// Package starts decides whether a container may start now, and names the missing condition otherwise.
package starts

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/messages"
)

// Blocker is the condition that keeps a container from its start.
type Blocker string

// The conditions.
const (
	None       Blocker = ""
	Reason     Blocker = "a reason to run" // it has ended for good
	Certainty  Blocker = "a known state"   // it is ended before it starts again
	BackingOff Blocker = "the end of its back-off"
	Image      Blocker = "its image"
	AnotherTry Blocker = "the end of the pause after a failed start"
	Earlier    Blocker = "the end of an earlier container's start"
	Target     Blocker = "the container whose processes it is to share"
	Reading    Blocker = "a reading that shows what the latest start made"
	End        Blocker = "the end of the pod, which nothing is started before" // a sidecar that has ended
)

// Pod is the pod with the machine's state of its starts.
type Pod struct {
	*known.State
	Now time.Time
	// Due reports whether a container has to start in the pod's phase.
	Due func(*known.Container) bool
}

// Blocker is the only place that decides whether a container may start now. It returns the missing condition, or None, and until
// when it is missing if that is known.
func (p *Pod) Blocker(c *known.Container) (Blocker, time.Time) {
	what, until := p.ownBlocker(c)
	switch {
	case what == None && p.waitsForEarlier(c):
		what = Earlier
	case what == None && c.Sidecar() && c.Exited() != nil && p.endsSoon():
		what = End
	}
	return what, until
}

// endsSoon reports whether the pod is about to end by itself: no regular container will start again, and the running ones are
// being stopped for a failed probe. The kubelet does nothing else meanwhile, however long a pre-stop hook takes.
func (p *Pod) endsSoon() bool {
	return !slices.ContainsFunc(p.Containers, func(c *known.Container) bool {
		last := c.Stage() == messages.StageStopping && p.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && !c.Replace
		return c.Regular() && !c.Over(p.Pod) && (!last || c.Spec.RestartPolicy != nil)
	})
}

// ownBlocker is like Blocker, without regard to other containers.
func (p *Pod) ownBlocker(c *known.Container) (Blocker, time.Time) {
	f := c.Newest()
	if f != nil && f.State == messages.ContainerUnknown {
		return Certainty, time.Time{}
	}
	if f = c.Exited(); c.Spec == nil || f != nil && c.Over(p.Pod) && !p.mustRunAgain(c, f) {
		return Reason, time.Time{}
	}
	stands, next := p.Adoptable(c), c.NextAttempt()
	if f != nil && next != c.Attempt { // the back-off of an attempt that was ordered before is over
		if at := p.RestartTime(p.Now, c, f.EndedAt); at.After(p.Now) {
			return BackingOff, at
		}
	}
	switch {
	case p.Now.Before(c.Retry.At):
		return AnotherTry, c.Retry.At
	case stands == nil && (c.Image.Attempt != next || c.Image.Ref == ""):
		return Image, time.Time{}
	case stands == nil && c.Target != "" && p.TargetID(c) == "":
		return Target, time.Time{}
	case stands == nil && next != c.Attempt && !c.Unread.IsZero():
		return Reading, time.Time{}
	}
	return None, time.Time{}
}

// mustRunAgain reports whether an init container must run again, since it succeeded in another sandbox.
func (p *Pod) mustRunAgain(c *known.Container, f *known.Attempt) bool {
	current := p.Current()
	return c.Init && current != nil && f.SandboxID != current.ID && f.ExitCode == 0
}

// waitsForEarlier reports whether the start of an earlier regular container has to end before the start of c. As in the kubelet,
// regular containers start in the spec's order, one after another. A start lasts from the pull of the image to the end of the
// post-start hook. A running container is adopted without a wait.
func (p *Pod) waitsForEarlier(c *known.Container) bool {
	before := p.Containers[:slices.Index(p.Containers, c)]
	return c.Regular() && !c.Running() && slices.ContainsFunc(before, func(e *known.Container) bool {
		return e.Regular() && p.beingStarted(e)
	})
}

// beingStarted reports whether a start of the container is in progress. A failed start is over until the container is retried. It
// delays no other container, nor does a container in back-off.
func (p *Pod) beingStarted(c *known.Container) bool {
	if c.Stage() != messages.StageIdle {
		return c.Stage() == messages.StageStarting
	}
	switch what, _ := p.ownBlocker(c); what {
	case Image:
		return c.Image.Reason == nil || c.Image.Awaits != nil
	case Reading, None:
		return true
	case Reason, Certainty, BackingOff, AnotherTry, Target, Earlier, End:
	}
	return false
}

// Hold returns the reason that keeps a container from starting, or nil.
func (p *Pod) Hold(c *known.Container) *messages.Reason {
	switch {
	case c.Spec == nil || c.Running():
		return nil
	case c.Image.Reason != nil && c.Image.Ref == "":
		return c.Image.Reason
	case c.Retry.Failed != nil:
		return c.Retry.Failed
	case c.Stage() != messages.StageStarting && p.Due(c) && c.Backoff.Step > 0:
		what, at := p.Blocker(c)
		if what != BackingOff {
			return nil
		}
		end := c.Exited()
		r := &messages.Reason{
			Code: messages.ReasonCrashLoopBackOff, RetryAt: at, Container: c.Name, Since: end.FinishedAt, Tries: int(end.Attempt),
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", c.Backoff.Wait(),
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
