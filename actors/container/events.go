package container

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// record tells an event about the container, where there is who writes it. An ID in what the runtime said would make a new
// event of each attempt: the name stands for it.
func (a *actor) record(ctx supervisors.Context, pod *v1.Pod, kind, reason, message string) {
	if !a.host.Events || pod == nil {
		return
	}
	if id := a.fact.ID; id != "" {
		message = strings.ReplaceAll(message, id, a.name)
	}
	ctx.Tell(messages.Events, messages.PodEvent(pod, a.name, kind, reason, message, ctx.Now()))
}

// recordStart tells what a start has done. What was found done is no news.
func (a *actor) recordStart(ctx supervisors.Context, d startDone) {
	if d.fact != nil {
		a.fact.ID = d.fact.ID
	}
	if d.created {
		a.record(ctx, a.desired.Pod, v1.EventTypeNormal, messages.EventCreated, "Container created")
	}
	if d.started {
		a.record(ctx, a.desired.Pod, v1.EventTypeNormal, messages.EventStarted, "Container started")
	}
	if d.reason != nil {
		a.record(ctx, a.desired.Pod, v1.EventTypeWarning, messages.EventFailed, "Error: "+d.reason.Message)
	}
}

// recordKill tells that the container is being ended: once, and not when that is joined, or when there is nothing to end.
func (a *actor) recordKill(ctx supervisors.Context, m messages.StopContainer) {
	id := m.Fact.ID
	if a.killed == id || m.Fact.State == messages.ContainerCreated || m.Fact.State == messages.ContainerExited {
		return
	}
	a.killed = id
	if len(a.host.Ops.InFlight(stopPrefix(m))) == 0 {
		a.record(ctx, m.Pod, v1.EventTypeNormal, messages.EventKilling, killMessage(m))
	}
}

// recordPreStop tells, once for each container, that its pre-stop hook failed.
func (a *actor) recordPreStop(ctx supervisors.Context, id string, failed bool) {
	if !failed || a.preStop == id || id != a.fact.ID {
		return
	}
	a.preStop = id
	a.record(ctx, a.endingPod, v1.EventTypeWarning, messages.EventFailedPreStopHook, "PreStopHook failed")
}

// recordStuck tells, once for each container, that the runtime cannot end it. As the kubelet has it, that is an event of the pod.
func (a *actor) recordStuck(ctx supervisors.Context, d stopDone) {
	if a.stuck == d.id || !a.host.Events || a.endingPod == nil {
		return
	}
	a.stuck = d.id
	message := "error killing pod: failed to \"KillContainer\" for \"" + a.name + "\": " +
		strings.ReplaceAll(d.failed.Error(), d.id, a.name)
	ctx.Tell(messages.Events, messages.PodEvent(a.endingPod, "", v1.EventTypeWarning, messages.EventFailedKillPod, message,
		ctx.Now()))
}

// killMessage is why a container is ended, in the kubelet's words. What a hook said is not in it: it may tell a secret.
func killMessage(m messages.StopContainer) string {
	switch {
	case strings.HasPrefix(m.Reason, "Container "):
		return m.Reason
	case strings.HasPrefix(m.Reason, failedPostStart):
		return failedPostStart
	default:
		return "Stopping container " + m.Name
	}
}
