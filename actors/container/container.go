// Package container implements the actor of one run of a container, that is, of one attempt. It creates, starts, watches and
// stops the container. When the container has ended, the actor exits with the result. The strategy that the pod spawned it
// with decides whether another run follows.
//
// The table edges has the stages of a run and their transitions. The pod orders a run with RunContainer and its end with
// StopContainer. The supervisor's record of the actor has the latest order, and each incarnation gets it with Started; an actor
// that runs gets an order as a message, too. The actor answers with ContainerReported:
//
//   - The actor is restarted: it carries out its order. It finds a created container by name, joins a start or a stop in progress
//     in the table of operations, and adopts a running container.
//   - A message to the running actor, or ContainerReported, is lost: the pod repeats the order, and the actor answers again.
//   - The actor fails before its exit is handled: it is restarted, receives the ended container, and exits.
//   - The runtime's events show the end first: the pod sends RunContainer with the ended container, and the actor exits.
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

// New returns a constructor of container actors. An actor has the name of its container.
func New(h *host.Host) supervisors.Constructor {
	return func(name string) supervisors.Actor { return &actor{host: h, name: name, stage: messages.StageIdle} }
}

// edges lists every transition of a run. Any other transition is a bug and fails the actor. A run, and with it the actor, may
// end in each stage.
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
	// hookFailed is the request to stop the container after its post-start hook failed.
	hookFailed *messages.StopContainer
	stop       *messages.StopContainer // received during the start
	until      time.Time               // the deadline of the stop in progress
	killed     string                  // the ID of the container in the latest Killing Event
	preStop    string                  // the ID of the container in the latest Event of a pre-stop hook
	stuck      string                  // the ID of the container in the latest Event of a failed stop
}

// enter changes the stage. It panics when edges lacks the transition.
func (a *actor) enter(to messages.ContainerStage) {
	if !slices.Contains(edges[a.stage], to) {
		panic(fmt.Sprintf("container %s of pod %s: no edge from %s to %s", a.name, a.uid, a.stage, to))
	}
	a.stage = to
}

// startResult is the result of a start.
type startResult struct {
	attempt   uint32
	fact      *messages.ContainerFact
	reason    *messages.Reason
	nameTaken bool // see messages.ContainerReported
	// reserved: see messages.ContainerReported.
	reserved bool
	hook     bool // the post-start hook must still run
	// created and started report which steps this start performed itself.
	created, started bool
	tooLarge         string // see translate.TooLarge
}

// stopResult is the result of a stop.
type stopResult struct {
	id     string
	fact   messages.ContainerFact
	failed error
	hook   hooks.PreStopDone
}

// retryPause is the delay before another stop of a container whose post-start hook failed.
const retryPause = 10 * time.Second

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		if m.Desired != nil { // otherwise nothing is to be started or ended
			a.Receive(ctx, m.Desired)
		}
	case messages.RunContainer:
		a.run(ctx, m)
	case messages.StopContainer:
		a.end(ctx, m)
	case startResult:
		a.handleStart(ctx, m)
	case stopResult:
		a.handleStop(ctx, m)
	case hookResult:
		a.handleHook(ctx, m)
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

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	return map[string]any{"state": string(a.stage), "attempt": a.desired.Attempt, "id": a.fact.ID}
}

// run handles RunContainer. It answers a repeated request again.
func (a *actor) run(ctx supervisors.Context, m messages.RunContainer) {
	a.uid = string(m.Pod.UID)
	ended := m.Adopt != nil && m.Adopt.State == messages.ContainerExited
	switch a.stage {
	case messages.StageIdle:
		switch {
		case ended:
			a.finish(ctx, *m.Adopt)
		case a.failed != nil && a.failed.Generation == m.Generation:
			ctx.Tell(ctx.Self().Parent(), *a.failed)
		default:
			a.begin(ctx, m)
		}
	case messages.StageStarting, messages.StageStopping: // the result is reported at the end
		if m.Attempt == a.desired.Attempt {
			a.desired.Generation = m.Generation
		}
	case messages.StageWaiting:
		if ended && m.Adopt.ID == a.fact.ID {
			a.finish(ctx, *m.Adopt)
		}
	case messages.StageHooking, messages.StageRunning:
		switch {
		case m.Attempt != a.fact.Attempt:
			ctx.Unhandled(m) // the pod learns of the end of this attempt before it orders the next
		case ended && m.Adopt.ID == a.fact.ID:
			a.finish(ctx, *m.Adopt)
		default:
			a.desired.Generation = m.Generation
			a.report(ctx)
		}
	}
}

// report sends the running container to the pod. A container whose hook failed is reported as hooking until it is stopped.
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
			return startResult{attempt: m.Attempt, fact: &fact, hook: hookPending(h, m, fact.ID)}
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

func (a *actor) handleStart(ctx supervisors.Context, d startResult) {
	if a.stage != messages.StageStarting || d.attempt != a.desired.Attempt {
		return
	}
	a.recordStart(ctx, d)
	if d.reason != nil {
		ctx.Log().Warn("container did not start", "attempt", d.attempt, "reason", d.reason.Code, "error", d.reason.Message)
	}
	ended := d.fact != nil && d.fact.State == messages.ContainerExited && !facts.CutOff(*d.fact)
	switch {
	case ended: // it exited before its status was read, or the runtime treats a failed start as an exit
		a.finish(ctx, *d.fact)
		return
	case d.reason != nil:
		a.enter(messages.StageIdle)
		a.failed = &messages.ContainerReported{
			UID: a.uid, Name: a.name, Generation: a.desired.Generation, Stage: a.stage, Fact: d.fact, Failed: d.reason,
			Taken: d.nameTaken, Reserved: d.reserved,
		}
		ctx.Tell(ctx.Self().Parent(), *a.failed)
	default:
		a.fact = *d.fact
		if d.hook && a.stop == nil {
			a.hook(ctx)
			break
		}
		a.enter(messages.StageRunning)
		if !d.hook { // otherwise the container is stopped next, without the hook
			a.report(ctx)
		}
	}
	if stop := a.stop; stop != nil {
		a.stop = nil
		stop.Fact = a.fact
		a.end(ctx, *stop)
	}
}

// end stops the container. A repeated request joins the stop in progress.
func (a *actor) end(ctx supervisors.Context, m messages.StopContainer) {
	a.uid = m.UID
	switch a.stage {
	case messages.StageStarting:
		a.stop = &m
		return
	case messages.StageStopping:
		if ctx.Now().Add(m.Grace).Before(a.until.Add(-cri.GraceSlack)) && m.Fact.ID == a.fact.ID {
			a.doStop(ctx, m) // its grace period has been shortened
		}
		return
	case messages.StageWaiting:
		if m.HookOnly && m.Fact.ID == a.fact.ID && !ctx.Now().Add(m.Grace).Before(a.until.Add(-cri.GraceSlack)) {
			return
		}
	case messages.StageIdle, messages.StageHooking, messages.StageRunning:
	}
	if m.Fact.ID == "" {
		ctx.Unhandled(m) // no container exists
		return
	}
	a.host.Ops.CutOff(host.PostStartKey(m.UID, m.Fact.ID))
	a.recordKill(ctx, m)
	a.fact, a.desired.Attempt, a.desired.Pod = m.Fact, m.Fact.Attempt, m.Pod
	if m.HookOnly {
		a.enter(messages.StageWaiting)
		a.until = ctx.Now().Add(m.Grace)
		ctx.Do(supervisors.Work{Name: "pre-stop hook", Timeout: m.Grace + time.Minute, Run: func(c context.Context) any {
			return hooks.PreStop(cri.WithPriority(c, m.Order), a.host, m, a.host.NewGrace(m.Grace))
		}})
		return
	}
	a.enter(messages.StageStopping)
	a.doStop(ctx, m)
}

// doStop starts the work that stops the container. The grace period begins now.
func (a *actor) doStop(ctx supervisors.Context, m messages.StopContainer) {
	a.until = ctx.Now().Add(m.Grace)
	ctx.Log().Info("stopping container", "id", m.Fact.ID, "why", explain.Stopping(m.Name, m.Cause), "grace", m.Grace)
	ctx.Do(supervisors.Work{
		Name: "StopContainer", Timeout: m.Grace + a.host.Reap(4),
		Run: func(c context.Context) any { return stop(cri.WithPriority(c, m.Order), a.host, m) },
	})
}

func (a *actor) handleStop(ctx supervisors.Context, d stopResult) {
	if a.stage != messages.StageStopping || d.id != a.fact.ID {
		return
	}
	a.recordPreStop(ctx, d.hook)
	if d.failed != nil {
		// The container may still run. The pod has no answer and asks again.
		ctx.Log().Warn("the container could not be stopped; will retry", "id", d.id, "error", d.failed)
		a.recordStuck(ctx, d)
		ctx.Tell(ctx.Self().Parent(), messages.ContainerReported{UID: a.uid, Name: a.name,
			StopFailed: strings.ReplaceAll(d.failed.Error(), d.id, a.name)})
		a.enter(messages.StageRunning)
		if a.hookFailed != nil {
			ctx.After(retryPause, retryStop{d.id})
		}
		return
	}
	a.finish(ctx, d.fact)
}

// finish ends the run: the actor exits with the ended container.
func (a *actor) finish(ctx supervisors.Context, f messages.ContainerFact) {
	a.fact = f
	a.host.EndHooks(a.uid, f.ID)
	ctx.Exit(messages.ContainerEnded{Fact: f})
}
