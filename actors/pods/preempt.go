package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// preempt ends other pods to make room for a critical one, and reports whether there will be enough. Pods that already end are
// counted, and only the remaining shortage is preempted.
func (a *actor) preempt(ctx supervisors.Context, r *room, w *desiredPod, claim *admission.Claim) bool {
	staying := a.claims((*entry).departs)
	refusal := admission.Admit(r.node, admission.NewLedger(slices.Concat(staying, r.reserved)...), claim)
	if refusal.Refused() {
		victims, ok := admission.Victims(w.pod, staying, refusal.Shortages)
		if !ok {
			return false
		}
		for _, v := range victims {
			e := a.entries[string(v.Pod.UID)]
			ctx.Log().Warn("preempting a pod for a critical one", "pod", e.name, "podUID", e.uid, "for",
				fullName(w.pod), "missing", refusal.Message)
			a.fail(ctx, e, messages.PodFailure{
				Reason: messages.ReasonPreempting, Message: "Preempted in order to admit critical pod",
				Disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
			})
			metrics.Preemptions.WithLabelValues(string(refusal.Shortages[0].Name)).Inc()
		}
	}
	r.awaited = true
	a.clear(ctx, r)
	return true
}

// evict ends a pod for a shortage of a resource. A pod that the node already ends gets the shorter of both grace periods. A pod
// that ends for another reason, or is over, does not change.
func (a *actor) evict(ctx supervisors.Context, m messages.EvictPod) {
	e := a.entries[m.UID]
	if e != nil && e.state == failing {
		a.hasten(ctx, e, m.Failure.Grace)
	}
	if e == nil || e.state != running {
		return
	}
	ctx.Log().Warn("evicted a pod", "pod", e.name, "podUID", e.uid, "message", m.Failure.Message)
	a.fail(ctx, e, m.Failure)
}

// hasten shortens the grace period of a pod that the node already ends. It never extends it.
func (a *actor) hasten(ctx supervisors.Context, e *entry, grace *int64) {
	why := *e.record.Fail
	has := ptr.Deref(cmp.Or(why.Grace, e.pod.Spec.TerminationGracePeriodSeconds), 30)
	if grace == nil || *grace >= has {
		return
	}
	ctx.Log().Warn("shortened the grace period of a pod that the node terminates", "pod", e.name, "podUID", e.uid,
		"seconds", *grace, "had", has)
	why.Grace = grace
	r := e.record
	r.Fail = &why
	a.keep(ctx, e, r)
	a.changed(ctx)
}

// fail makes the node end a pod. Its actor is informed when the decision is on disk.
func (a *actor) fail(ctx supervisors.Context, e *entry, why messages.PodFailure) {
	e.failed = ctx.Now()
	r := e.record
	r.Fail = &why
	a.keep(ctx, e, r)
	a.enter(ctx, e, failing)
	a.changed(ctx)
	text := explain.Event(strings.TrimSpace(why.Message), "") // the kubelet's text needs no explanation
	event := messages.PodEvent(e.pod, "", v1.EventTypeWarning, why.Reason, text, ctx.Now())
	event.Annotations = why.Annotations
	ctx.Tell(messages.Events, event)
}

// makingRoom returns the reason of a critical pod, or of a later one, that waits for the end of others. It names them.
func (a *actor) makingRoom(ctx supervisors.Context, lacks string) *messages.Reason {
	var names []string
	for _, e := range a.entries {
		if e.departs() && e.holdsRoom() && !e.overdue(ctx.Now()) {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return &messages.Reason{Code: messages.ReasonPreempting, Message: fmt.Sprintf(
		"it waits for the end of %s, to have room: %s", strings.Join(names, ", "), lacks)}
}

// As with the kubelet, a preempted pod has one and a half times its grace period, at least 10 s. Then the critical pod starts all
// the same.
const (
	leastRoomWait = 10 * time.Second
	roomDueSlack  = 10 * time.Millisecond
)

// leaves returns when an ending pod should have left, or zero for a pod that does not end.
func (e *entry) leaves() time.Time {
	var at time.Time
	from := func(since time.Time, grace *int64) {
		ends := since.Add(max(podspec.Grace(ptr.Deref(grace, 30))*3/2, leastRoomWait))
		if at.IsZero() || ends.Before(at) {
			at = ends
		}
	}
	if e.record.Fail != nil {
		from(e.failed, cmp.Or(e.record.Fail.Grace, e.pod.Spec.TerminationGracePeriodSeconds))
	}
	switch {
	case e.ending != nil:
		from(e.ending.Since, e.grace())
	case e.lingers && e.record.Fail == nil:
		from(e.failed, e.pod.Spec.TerminationGracePeriodSeconds)
	}
	return at
}

// overdue reports whether the pod should have left. Something of it cannot be ended, and other pods do not wait for it any
// longer.
func (e *entry) overdue(now time.Time) bool {
	at := e.leaves()
	return !at.IsZero() && !now.Before(at)
}

// roomDue reconsiders pods that wait for the end of others.
type roomDue struct{}

// awaitRoom schedules the next reconsideration for when the first of the ending pods should have left.
func (a *actor) awaitRoom(ctx supervisors.Context) {
	now, next := ctx.Now(), time.Time{}
	for _, e := range a.entries {
		if !e.holdsRoom() {
			continue
		}
		if at := e.leaves(); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if planned := a.waiting.at; next.IsZero() || planned.After(now) && !next.Before(planned) {
		return
	}
	a.waiting.at = next
	ctx.After(next.Sub(now)+roomDueSlack, roomDue{})
}

// roomDue reports preempted pods that have not left in time, and reconsiders the waiting pods.
func (a *actor) roomDue(ctx supervisors.Context) {
	for _, e := range a.entries {
		if e.record.Fail != nil && !e.stuck && e.holdsRoom() && e.overdue(ctx.Now()) {
			e.stuck = true
			ctx.Log().Warn("a preempted pod does not terminate; starting the critical pod anyway", "pod",
				e.name, "podUID", e.uid, "reason", e.record.Fail.Reason)
			recordEvent(ctx, e.pod, messages.EventExceededGracePeriod,
				"Container runtime did not kill the pod within specified grace period.")
		}
	}
	a.reconsider(ctx)
	if a.waiting.some {
		a.awaitRoom(ctx)
	}
}

// recordWait records an Event of the reason for which a pod waits or has failed, with the sentence of "playlet pods".
func recordWait(ctx supervisors.Context, pod *v1.Pod, r messages.Reason) {
	recordEvent(ctx, pod, r.Code, explain.EventOf(r.Message, pod, r))
}

func recordEvent(ctx supervisors.Context, pod *v1.Pod, reason, message string) {
	ctx.Tell(messages.Events, messages.PodEvent(pod, "", v1.EventTypeWarning, reason, message, ctx.Now()))
}
