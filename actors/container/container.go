// Package container is the actor of one container: it creates and starts it, sees it run, ends it. When the container
// has ended, the actor says so and stays; its supervisor, the pod, answers by restartPolicy.
package container

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// New makes actors of the kind "container", named as the container in its pod.
func New(h *host.Host) supervisors.Constructor {
	return func(name string) supervisors.Actor { return &actor{host: h, name: name, state: idle} }
}

// state is where the container is, as far as its actor knows. The pod keeps the whole story; this is the present.
type state string

const (
	idle     state = "idle"     // it knows nothing yet → starting, running, stopping
	starting state = "starting" // create and start are under way → hooking, running, failed, ended
	hooking  state = "hooking"  // it runs, and its post-start hook does → running, stopping, ended
	running  state = "running"  // → stopping, ended
	stopping state = "stopping" // hook, signal and grace are under way → ended, running when that failed
	failed   state = "failed"   // this attempt could not be made → starting
	ended    state = "ended"    // → starting, with the next attempt only
)

type actor struct {
	host  *host.Host
	name  string
	state state
	uid   string
	try   uint32 // attempt
	turn  uint64 // the latest try at it that was asked for
	fact  messages.ContainerFact
	fail  messages.ContainerFailed
	wish  messages.RunContainer
	// condemned is how a container is ended whose post-start hook failed.
	condemned *messages.StopContainer
	stop      *messages.StopContainer // asked for while the start was under way
	until     time.Time               // by when it is to be ended, while it is being stopped
	killed    string                  // the ID of the container of whose end an event was told
	stuck     string                  // and of that which could not be ended
	endingPod *v1.Pod                 // of the latest wish to end it
}

// startDone is the result of creating and starting.
type startDone struct {
	attempt uint32
	fact    *messages.ContainerFact
	reason  *messages.Reason
	taken   bool // see messages.ContainerFailed
	hook    bool // the post-start hook is still to be run
	// created and started are what was done, rather than found done.
	created, started bool
}

// stopDone is the result of ending.
type stopDone struct {
	id     string
	fact   messages.ContainerFact
	failed error
	// hookFailed says that the pre-stop hook did.
	hookFailed bool
}

// retryPause is how long after a failure a container is ended again whose hook failed.
const retryPause = 10 * time.Second

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started: // it waits for its wish
	case messages.RunContainer:
		a.run(ctx, m)
	case messages.StopContainer:
		a.end(ctx, m)
	case messages.ContainerObserved:
		a.observed(ctx, m)
	case startDone:
		a.startDone(ctx, m)
	case stopDone:
		a.stopDone(ctx, m)
	case hookDone:
		a.hookDone(ctx, m)
	case retryStop:
		if a.state == running && a.condemned != nil && m.id == a.fact.ID {
			a.end(ctx, *a.condemned)
		}
	default:
		ctx.Unhandled(msg)
	}
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	return map[string]any{"state": string(a.state), "attempt": a.try, "id": a.fact.ID}
}

// run takes the wish. Told again, it is answered again.
func (a *actor) run(ctx supervisors.Context, m messages.RunContainer) {
	a.uid = string(m.Pod.UID)
	same, again := a.try == m.Attempt, a.turn == m.Turn
	a.turn = m.Turn
	switch {
	case a.state == starting || a.state == stopping:
	case a.state == hooking && same, a.state == running && same && a.condemned != nil:
		a.tellPod(ctx, messages.ContainerStarted{UID: a.uid, Fact: a.fact, Hooking: true})
	case a.state == running && same:
		a.tellPod(ctx, messages.ContainerStarted{UID: a.uid, Fact: a.fact})
	case a.state == ended && same:
		a.tellPod(ctx, messages.ContainerEnded{UID: a.uid, Fact: a.fact})
	case a.state == failed && same && again:
		a.tellPod(ctx, a.fail)
	case a.state == running, a.state == hooking:
		ctx.Unhandled(m) // the pod is told of this one's end before it can want the next
	default:
		a.begin(ctx, m)
	}
}

func (a *actor) begin(ctx supervisors.Context, m messages.RunContainer) {
	a.try, a.wish, a.condemned = m.Attempt, m, nil
	if m.Adopt != nil && m.Adopt.State == messages.ContainerRunning && postStart(m.Container) != nil {
		a.state = starting
		a.look(ctx, m)
		return
	}
	if m.Adopt != nil && m.Adopt.State == messages.ContainerRunning {
		a.state, a.fact = running, *m.Adopt
		a.tellPod(ctx, messages.ContainerStarted{UID: a.uid, Fact: a.fact})
		return
	}
	a.state = starting
	ctx.Do(supervisors.Work{
		Name: "StartContainer", Timeout: a.host.Reap(5),
		Run: func(c context.Context) any { return start(cri.WithPriority(c, m.Order), a.host, m) },
	})
}

func (a *actor) startDone(ctx supervisors.Context, d startDone) {
	if a.state != starting || d.attempt != a.try {
		return
	}
	a.recordStart(ctx, d)
	switch {
	case d.reason != nil:
		a.state = failed
		ctx.Log().Warn("container did not start", "attempt", a.try, "reason", d.reason.Code, "error", d.reason.Message)
		a.fail = messages.ContainerFailed{UID: a.uid, Name: a.name, Attempt: a.try, Turn: a.turn, Reason: *d.reason, Fact: d.fact, Taken: d.taken}
		a.tellPod(ctx, a.fail)
	case d.fact.State == messages.ContainerExited: // it was quicker than the look at it
		a.over(ctx, *d.fact)
	case d.hook && a.stop != nil: // it is ended next, without the hook
		a.state, a.fact = running, *d.fact
	case d.hook:
		a.fact = *d.fact
		a.hook(ctx)
	default:
		a.state, a.fact = running, *d.fact
		a.tellPod(ctx, messages.ContainerStarted{UID: a.uid, Fact: a.fact})
	}
	if stop := a.stop; stop != nil {
		a.stop = nil
		stop.Fact = a.fact
		a.end(ctx, *stop)
	}
}

// end has the container ended. Asked again, it joins what is under way, or is answered again.
func (a *actor) end(ctx supervisors.Context, m messages.StopContainer) {
	a.uid = m.UID
	switch a.state {
	case starting:
		a.stop = &m
		return
	case ended:
		if m.Fact.ID == "" || m.Fact.ID == a.fact.ID {
			a.tellPod(ctx, messages.ContainerEnded{UID: a.uid, Fact: a.fact})
			return
		}
	case stopping:
		if ctx.Now().Add(m.Grace).Before(a.until.Add(-cri.GraceSlack)) && m.Fact.ID == a.fact.ID {
			a.doStop(ctx, m) // it was given less time since
		}
		return
	case idle, running, hooking, failed:
	}
	if m.Fact.ID == "" {
		ctx.Unhandled(m) // there is nothing to end
		return
	}
	a.host.Ops.CutOff(postStartKey(m.UID, m.Fact.ID))
	a.endingPod = m.Pod
	a.recordKill(ctx, m)
	a.state, a.fact, a.try = stopping, m.Fact, m.Fact.Attempt
	a.doStop(ctx, m)
}

// doStop has it ended within the grace period, from now on.
func (a *actor) doStop(ctx supervisors.Context, m messages.StopContainer) {
	a.until = ctx.Now().Add(m.Grace)
	ctx.Log().Info("stopping container", "id", m.Fact.ID, "why", m.Reason, "grace", m.Grace)
	ctx.Do(supervisors.Work{
		Name: "StopContainer", Timeout: m.Grace + a.host.Reap(4),
		Run: func(c context.Context) any { return stop(cri.WithPriority(c, m.Order), a.host, m) },
	})
}

func (a *actor) stopDone(ctx supervisors.Context, d stopDone) {
	if a.state != stopping || d.id != a.fact.ID {
		return
	}
	if d.hookFailed {
		a.record(ctx, a.endingPod, v1.EventTypeWarning, messages.EventFailedPreStopHook, "PreStopHook failed")
	}
	if d.failed != nil {
		// It may run still: the pod, which has no answer, asks again.
		ctx.Log().Warn("the container could not be stopped; it is tried again", "id", d.id, "error", d.failed)
		a.recordStuck(ctx, d)
		a.state = running
		if a.condemned != nil {
			ctx.After(retryPause, retryStop{d.id})
		}
		return
	}
	a.over(ctx, d.fact)
}

// over takes the end of the container.
func (a *actor) over(ctx supervisors.Context, f messages.ContainerFact) {
	a.state, a.fact = ended, f
	a.host.Ops.CutOff(postStartKey(a.uid, f.ID))
	ctx.Log().Info("container ended", "id", f.ID, "attempt", f.Attempt, "exitCode", f.ExitCode, "reason", f.Reason)
	a.tellPod(ctx, messages.ContainerEnded{UID: a.uid, Fact: f})
}

// observed takes the CRI's word that the container has ended.
func (a *actor) observed(ctx supervisors.Context, m messages.ContainerObserved) {
	if m.Fact.ID != a.fact.ID || m.Fact.State != messages.ContainerExited {
		return
	}
	switch a.state {
	case running, hooking:
		a.over(ctx, m.Fact)
	case ended:
		a.tellPod(ctx, messages.ContainerEnded{UID: a.uid, Fact: a.fact})
	case idle, starting, stopping, failed:
	}
}

func (a *actor) tellPod(ctx supervisors.Context, msg any) { ctx.Tell(ctx.Self().Parent(), msg) }
