package container

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// explained records a warning Event with Kubernetes' text and the sentence that "playlet pods" shows.
func (a *actor) explained(ctx supervisors.Context, pod *v1.Pod, reason, words string, why messages.Reason) {
	if pod == nil {
		return
	}
	why.Container = a.name
	a.record(ctx, pod, a.name, v1.EventTypeWarning, reason, explain.EventOf(words, pod, why))
}

// record records an Event about the container or, if it is empty, about the pod. It does nothing on a node without an events
// actor. The name replaces the container's ID in the message, because each attempt's ID would make a new Event.
func (a *actor) record(ctx supervisors.Context, pod *v1.Pod, container, kind, reason, message string) {
	if !a.host.Events || pod == nil {
		return
	}
	if id := a.fact.ID; id != "" {
		message = strings.ReplaceAll(message, id, a.name)
	}
	ctx.Tell(messages.Events, messages.PodEvent(pod, container, kind, reason, message, ctx.Now()))
}

// recordStart records Events for the steps that a start performed itself.
func (a *actor) recordStart(ctx supervisors.Context, d startResult) {
	if d.fact != nil {
		a.fact.ID = d.fact.ID
	}
	if d.created {
		a.record(ctx, a.desired.Pod, a.name, v1.EventTypeNormal, messages.EventCreated, "Container created")
	}
	if d.tooLarge != "" {
		ctx.Log().Warn("container cannot start", "attempt", d.attempt, "error", d.tooLarge)
		a.record(ctx, a.desired.Pod, a.name, v1.EventTypeWarning, messages.EventFailed, "Error: "+d.tooLarge)
	}
	if d.started {
		a.record(ctx, a.desired.Pod, a.name, v1.EventTypeNormal, messages.EventStarted, "Container started")
	}
	if d.reason != nil {
		metrics.NotStarted(a.desired.Pod, a.name, d.reason.Code)
		a.explained(ctx, a.desired.Pod, messages.EventFailed, "Error: "+d.reason.Message, *d.reason)
	}
}

// recordKill records that the container is being stopped: once, not for a joined stop, and not if it does not run.
func (a *actor) recordKill(ctx supervisors.Context, m messages.StopContainer) {
	id := m.Fact.ID
	if a.killed == id || m.Fact.State == messages.ContainerCreated || m.Fact.State == messages.ContainerExited {
		return
	}
	a.killed = id
	if len(a.host.Ops.InFlight(stopPrefix(m))) == 0 {
		a.record(ctx, m.Pod, a.name, v1.EventTypeNormal, messages.EventKilling, killing(m))
	}
}

// killing returns the message of the Event Killing. After a failed probe, Kubernetes' own words have the cause, and the Event
// Unhealthy has the probe's result.
func killing(m messages.StopContainer) string {
	words := explain.Killing(m.Name, m.Cause)
	if m.Cause.Code == messages.CauseProbeFailed {
		return words
	}
	return explain.Event(words, m.Explained)
}

// recordFallback records an Event of the pod, as the kubelet does, when an HTTPS hook was answered in plain HTTP.
func (a *actor) recordFallback(ctx supervisors.Context, server string) {
	if server != "" {
		a.record(ctx, a.desired.Pod, "", v1.EventTypeWarning, messages.EventHTTPFallback,
			"request to HTTPS lifecycle hook "+server+" got HTTP response, retry with HTTP succeeded")
	}
}

// recordPreStop records, once per container, that its pre-stop hook failed or was answered in plain HTTP.
func (a *actor) recordPreStop(ctx supervisors.Context, d hooks.PreStopDone) {
	if !d.Failed && d.Fallback == "" || a.preStop == d.ID || d.ID != a.fact.ID {
		return
	}
	a.preStop = d.ID
	a.recordFallback(ctx, d.Fallback)
	if !d.Failed {
		return
	}
	a.record(ctx, a.desired.Pod, a.name, v1.EventTypeWarning, messages.EventFailedPreStopHook, "PreStopHook failed")
}

// recordStuck records, once per container, that the runtime cannot stop it. As in the kubelet, it is an Event of the pod.
func (a *actor) recordStuck(ctx supervisors.Context, d stopResult) {
	if a.stuck == d.id || a.desired.Pod == nil {
		return
	}
	a.stuck = d.id
	said := strings.ReplaceAll(d.failed.Error(), d.id, a.name)
	message := explain.EventOf("error killing pod: failed to \"KillContainer\" for \""+a.name+"\": "+said, a.desired.Pod,
		messages.Reason{Code: messages.ReasonKilling, Container: a.name, Cause: messages.Cause{Text: said}})
	a.record(ctx, a.desired.Pod, "", v1.EventTypeWarning, messages.EventFailedKillPod, message)
}
