// Package container is the actor of one container: one run of it, that is, one attempt. It creates and starts the container,
// sees it run and ends it. When the container has ended, so does the actor, with the exit as its result. What follows is
// said by the strategy that the pod spawned it with: the layer starts the actor again after the crash back-off, or leaves it.
//
// The stages of a run, and what leads from one to another, are the table edges. The pod tells what it wants in RunContainer
// and StopContainer, and hears in ContainerReported where the run stands. All three are said again until they are answered:
//
//   - RunContainer is lost, or the actor falls and knows nothing: the pod tells it again; what was made is found by its name,
//     what is under way is joined in the table of operations, and what runs is adopted.
//   - ContainerReported is lost: RunContainer comes again and is answered again.
//   - StopContainer is lost: it comes again, and joins the stop that is under way.
//   - The actor falls before its exit is judged: it is started again, told of the container that has ended, and exits.
//   - The end is seen by the runtime's events first: the pod tells RunContainer with the ended container, and the actor exits.
package container

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// New makes actors of the kind "container", named as the container in its pod.
func New(h *host.Host) supervisors.Constructor {
	return func(name string) supervisors.Actor { return &actor{host: h, name: name, stage: messages.StageIdle} }
}

// edges is every transition of a run. An edge outside it is a bug and fails the actor. From each stage the run may end, and
// the actor with it.
var edges = map[messages.ContainerStage][]messages.ContainerStage{
	messages.StageIdle:     {messages.StageStarting, messages.StageRunning, messages.StageWaiting, messages.StageStopping},
	messages.StageStarting: {messages.StageIdle, messages.StageHooking, messages.StageRunning},
	messages.StageHooking:  {messages.StageRunning, messages.StageWaiting, messages.StageStopping},
	messages.StageRunning:  {messages.StageWaiting, messages.StageStopping},
	messages.StageWaiting:  {messages.StageWaiting, messages.StageStopping},
	messages.StageStopping: {messages.StageRunning}, // the runtime could not stop it
}

type actor struct {
	host    *host.Host
	name    string
	uid     string
	stage   messages.ContainerStage
	desired messages.RunContainer
	fact    messages.ContainerFact      // the container of this run
	failed  *messages.ContainerReported // of the latest start, which failed
	// hookFailed is how a container is ended whose post-start hook failed.
	hookFailed *messages.StopContainer
	stop       *messages.StopContainer // asked for while the start was under way
	until      time.Time               // when it is to have ended, while it is being stopped
	killed     string                  // the ID of the container whose end an event has told
	preStop    string                  // the ID of the container whose pre-stop hook an event has told failed
	stuck      string                  // the ID of the container of which an event has told that it could not be ended
}

// enter is the one way from a stage to another.
func (a *actor) enter(to messages.ContainerStage) {
	if !slices.Contains(edges[a.stage], to) {
		panic(fmt.Sprintf("container %s of pod %s: no edge from %s to %s", a.name, a.uid, a.stage, to))
	}
	a.stage = to
}

// startDone is the result of creating and starting.
type startDone struct {
	attempt uint32
	fact    *messages.ContainerFact
	reason  *messages.Reason
	taken   bool // see messages.ContainerReported
	// reserved: see messages.ContainerReported.
	reserved bool
	hook     bool // the post-start hook is still to be run
	// created and started are what was done, rather than found done.
	created, started bool
	tooLarge         string // see translate.TooLarge
}

// stopDone is the result of ending.
type stopDone struct {
	id     string
	fact   messages.ContainerFact
	failed error
	hook   hooks.PreStopDone
}

// retryPause is how long after a failure a container is ended again whose hook failed.
const retryPause = 10 * time.Second

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started: // it waits for what its pod wants
	case messages.RunContainer:
		a.run(ctx, m)
	case messages.StopContainer:
		a.end(ctx, m)
	case startDone:
		a.startDone(ctx, m)
	case stopDone:
		a.stopDone(ctx, m)
	case hookDone:
		a.hookDone(ctx, m)
	case hooks.PreStopDone:
		a.recordPreStop(ctx, m)
	case retryStop:
		if a.stage == messages.StageRunning && a.hookFailed != nil && m.id == a.fact.ID {
			a.end(ctx, *a.hookFailed)
		}
	default:
		ctx.Unhandled(msg)
	}
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	return map[string]any{"state": string(a.stage), "attempt": a.desired.Attempt, "id": a.fact.ID}
}

// run takes what the pod wants. Told again, it is answered again.
func (a *actor) run(ctx supervisors.Context, m messages.RunContainer) {
	a.uid = string(m.Pod.UID)
	ended := m.Adopt != nil && m.Adopt.State == messages.ContainerExited
	switch a.stage {
	case messages.StageIdle:
		switch {
		case ended:
			a.over(ctx, *m.Adopt)
		case a.failed != nil && a.failed.Generation == m.Generation:
			ctx.Tell(ctx.Self().Parent(), *a.failed)
		default:
			a.begin(ctx, m)
		}
	case messages.StageStarting, messages.StageStopping: // what comes of it is told
		if m.Attempt == a.desired.Attempt {
			a.desired.Generation = m.Generation
		}
	case messages.StageWaiting:
		if ended && m.Adopt.ID == a.fact.ID {
			a.over(ctx, *m.Adopt)
		}
	case messages.StageHooking, messages.StageRunning:
		switch {
		case m.Attempt != a.fact.Attempt:
			ctx.Unhandled(m) // the pod hears of this one's end before it can want the next
		case ended && m.Adopt.ID == a.fact.ID:
			a.over(ctx, *m.Adopt)
		default:
			a.desired.Generation = m.Generation
			a.report(ctx)
		}
	}
}

// report tells the pod of the container that runs. While it is to be ended since its hook failed, it has not started for others.
func (a *actor) report(ctx supervisors.Context) {
	fact, stage, failed := a.fact, a.stage, ""
	if a.hookFailed != nil {
		stage, failed = messages.StageHooking, a.hookFailed.Cause.Text
	}
	ctx.Tell(ctx.Self().Parent(), messages.ContainerReported{
		UID: a.uid, Name: a.name, Generation: a.desired.Generation, Stage: stage, Fact: &fact,
		HookFailed: failed,
	})
}

func (a *actor) begin(ctx supervisors.Context, m messages.RunContainer) {
	a.desired, a.failed, a.hookFailed = m, nil, nil
	adopts := m.Adopt != nil && m.Adopt.State == messages.ContainerRunning
	switch {
	case adopts && postStart(m.Container) != nil: // it may still need its hook
		a.enter(messages.StageStarting)
		h, fact := a.host, *m.Adopt
		ctx.Do(supervisors.Work{Name: "look for a post-start hook", Timeout: time.Minute, Run: func(context.Context) any {
			return startDone{attempt: m.Attempt, fact: &fact, hook: hookPending(h, m, fact.ID)}
		}})
	case adopts:
		a.fact = *m.Adopt
		a.enter(messages.StageRunning)
		a.report(ctx)
	default:
		a.enter(messages.StageStarting)
		ctx.Do(supervisors.Work{
			Name: "StartContainer", Timeout: a.host.Reap(5),
			Run: func(c context.Context) any { return start(cri.WithPriority(c, m.Order), a.host, m) },
		})
	}
}

func (a *actor) startDone(ctx supervisors.Context, d startDone) {
	if a.stage != messages.StageStarting || d.attempt != a.desired.Attempt {
		return
	}
	a.recordStart(ctx, d)
	if d.reason != nil {
		ctx.Log().Warn("container did not start", "attempt", d.attempt, "reason", d.reason.Code, "error", d.reason.Message)
	}
	ended := d.fact != nil && d.fact.State == messages.ContainerExited && !facts.CutOff(*d.fact)
	switch {
	case ended: // it was quicker than the look at it, or the runtime counts a start that failed as an end
		a.over(ctx, *d.fact)
		return
	case d.reason != nil:
		a.enter(messages.StageIdle)
		a.failed = &messages.ContainerReported{
			UID: a.uid, Name: a.name, Generation: a.desired.Generation, Stage: a.stage, Fact: d.fact, Failed: d.reason,
			Taken: d.taken, Reserved: d.reserved,
		}
		ctx.Tell(ctx.Self().Parent(), *a.failed)
	default:
		a.fact = *d.fact
		if d.hook && a.stop == nil {
			a.hook(ctx)
			break
		}
		a.enter(messages.StageRunning)
		if !d.hook { // else it is ended next, without the hook
			a.report(ctx)
		}
	}
	if stop := a.stop; stop != nil {
		a.stop = nil
		stop.Fact = a.fact
		a.end(ctx, *stop)
	}
}

// end has the container ended. Asked again, it joins what is under way.
func (a *actor) end(ctx supervisors.Context, m messages.StopContainer) {
	a.uid = m.UID
	switch a.stage {
	case messages.StageStarting:
		a.stop = &m
		return
	case messages.StageStopping:
		if ctx.Now().Add(m.Grace).Before(a.until.Add(-cri.GraceSlack)) && m.Fact.ID == a.fact.ID {
			a.doStop(ctx, m) // it was given less time since
		}
		return
	case messages.StageWaiting:
		if m.HookOnly && m.Fact.ID == a.fact.ID && !ctx.Now().Add(m.Grace).Before(a.until.Add(-cri.GraceSlack)) {
			return
		}
	case messages.StageIdle, messages.StageHooking, messages.StageRunning:
	}
	if m.Fact.ID == "" {
		ctx.Unhandled(m) // there is nothing to end
		return
	}
	a.host.Ops.CutOff(host.PostStartKey(m.UID, m.Fact.ID))
	a.recordKill(ctx, m)
	a.fact, a.desired.Attempt, a.desired.Pod = m.Fact, m.Fact.Attempt, m.Pod
	if m.HookOnly {
		a.enter(messages.StageWaiting)
		a.until = ctx.Now().Add(m.Grace)
		ctx.Do(supervisors.Work{Name: "pre-stop hook", Timeout: m.Grace + time.Minute, Run: func(c context.Context) any {
			return hooks.PreStop(cri.WithPriority(c, m.Order), a.host, m)
		}})
		return
	}
	a.enter(messages.StageStopping)
	a.doStop(ctx, m)
}

// doStop has it ended within the grace period, from now on.
func (a *actor) doStop(ctx supervisors.Context, m messages.StopContainer) {
	a.until = ctx.Now().Add(m.Grace)
	ctx.Log().Info("stopping container", "id", m.Fact.ID, "why", explain.Stopping(m.Name, m.Cause), "grace", m.Grace)
	ctx.Do(supervisors.Work{
		Name: "StopContainer", Timeout: m.Grace + a.host.Reap(4),
		Run: func(c context.Context) any { return stop(cri.WithPriority(c, m.Order), a.host, m) },
	})
}

func (a *actor) stopDone(ctx supervisors.Context, d stopDone) {
	if a.stage != messages.StageStopping || d.id != a.fact.ID {
		return
	}
	a.recordPreStop(ctx, d.hook)
	if d.failed != nil {
		// It may run still: the pod, which has no answer, asks again.
		ctx.Log().Warn("the container could not be stopped; it is tried again", "id", d.id, "error", d.failed)
		a.recordStuck(ctx, d)
		ctx.Tell(ctx.Self().Parent(), messages.ContainerReported{UID: a.uid, Name: a.name,
			StopFailed: strings.ReplaceAll(d.failed.Error(), d.id, a.name)})
		a.enter(messages.StageRunning)
		if a.hookFailed != nil {
			ctx.After(retryPause, retryStop{d.id})
		}
		return
	}
	a.over(ctx, d.fact)
}

// over ends the run with the end of its container, and the actor with it.
func (a *actor) over(ctx supervisors.Context, f messages.ContainerFact) {
	a.fact = f
	a.host.EndHooks(a.uid, f.ID)
	ctx.Exit(messages.ContainerEnded{Fact: f})
}
