// Package ender is the actor that ends a pod in place of the pod's own actor, after repeated panics put that actor in
// quarantine. It shares only the order of stops with that actor's machine. It runs pre-stop hooks, stops the containers in that
// order, unmounts, removes, and reports the final status. It derives all state from messages and readings, and may be killed at
// any message.
package ender

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// workTimeout bounds the work with the runtime, besides the grace period. It is then requested again, which joins it.
const workTimeout = 2 * time.Minute

// New returns the constructor of actors of the kind "ender", named by the UID of their pod.
func New(h *host.Host) supervisors.Constructor {
	return func(uid string) supervisors.Actor { return &actor{host: h, machine: newMachine(uid)} }
}

type actor struct {
	host    *host.Host
	machine *machine
	timer   supervisors.Timer
}

// timerFired is the timer's message.
type timerFired struct{}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, timerFired:
		msg = nil
	case messages.PodWanted, messages.PodObserved, messages.VolumesUnmounted, messages.PodCgroupRemoved, messages.ServiceStarted,
		messages.ClaimsReleased, messages.ClaimsFailed,
		stopResult, removeResult:
	default:
		ctx.Unhandled(m)
		return
	}
	for _, e := range a.machine.step(ctx.Now(), msg) {
		a.do(ctx, e)
	}
}

func (a *actor) do(ctx supervisors.Context, e any) {
	m := a.machine
	switch e := e.(type) {
	case transition:
		ctx.Log().Info("terminating a pod whose actor is in quarantine", "from", e.from, "to", e.to, "podUID", m.uid)
	case tell:
		ctx.Tell(e.to, e.msg)
	case stop:
		s := stopper{host: a.host, pod: m.desired.Pod, ips: m.ips(), until: e.until}
		a.work(ctx, "stop all containers", e.until.Sub(ctx.Now())+workTimeout, func(c context.Context) any {
			return stopResult{e.grace, s.stopAll(c)}
		})
	case remove:
		pod := m.desired.Pod
		a.work(ctx, "remove the pod from the runtime", workTimeout,
			func(c context.Context) any { return removeResult{a.host.RemovePod(c, pod)} })
	case wake:
		supervisors.Cancel(a.timer)
		a.timer = ctx.After(e.at.Sub(ctx.Now()), timerFired{})
	}
}

func (a *actor) work(ctx supervisors.Context, name string, timeout time.Duration, run func(context.Context) any) {
	order := a.machine.desired.Order
	ctx.Do(supervisors.Work{Name: name, Timeout: max(timeout, workTimeout),
		Run: func(c context.Context) any { return run(cri.WithPriority(c, order)) }})
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	return map[string]string{"state": string(a.machine.state), "failure": a.machine.failure}
}
