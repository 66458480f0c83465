package pods

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// preempt ends other pods so that there is room for a critical one, and reports whether there will be. What is ending already
// is counted on, and nothing more is ended than is lacking besides.
func (a *actor) preempt(ctx supervisors.Context, r *room, w want, claim *admission.Claim) bool {
	staying := a.claims(func(e *entry) bool { return e.ending != nil || e.fail != nil })
	refusal := admission.Admit(r.node, admission.NewLedger(slices.Concat(staying, r.reserved)...), claim)
	if !refusal.Refused() {
		r.awaited = true
		a.clear(ctx, r)
		return true
	}
	victims, ok := admission.Victims(w.pod, staying, refusal.Lacks)
	if !ok {
		return false
	}
	for _, v := range victims {
		e := a.entries[string(v.Pod.UID)]
		a.fail(ctx, e, messages.PodFailure{
			Reason: messages.ReasonPreempting, Message: "Preempted in order to admit critical pod",
			Disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
		})
		ctx.Log().Warn("a pod is ended to make room for a critical one", "pod", fullName(e.pod), "podUID", e.pod.UID,
			"for", fullName(w.pod), "lacks", refusal.Message)
		tellEvent(ctx, e.pod, e.fail.Reason, e.fail.Message)
	}
	r.awaited = true
	a.clear(ctx, r)
	return true
}

// makingRoom is why a critical pod, or one that comes after it, waits: for the end of others, which are named.
func (a *actor) makingRoom(ctx supervisors.Context, lacks string) *messages.Reason {
	var names []string
	for _, e := range a.entries {
		if (e.fail != nil || e.ending != nil) && a.holdsRoom(e) && !e.overdue(ctx.Now()) {
			names = append(names, fullName(e.pod))
		}
	}
	slices.Sort(names)
	return &messages.Reason{Code: messages.ReasonPreempting, Message: fmt.Sprintf(
		"it waits for the end of %s, to have room: %s", strings.Join(names, ", "), lacks)}
}

// A pod that is ended for another has one and a half times its grace period, and 10 s at least, as with the kubelet, which
// then starts the critical one all the same.
const (
	leastRoomWait = 10 * time.Second
	roomDueSlack  = 10 * time.Millisecond
)

// leaves is when a pod that ends should have left; zero for one that does not end.
func (e *entry) leaves() time.Time {
	wait := func(since time.Time, grace *int64) time.Time {
		seconds := int64(30)
		if grace != nil {
			seconds = *grace
		}
		return since.Add(max(podspec.Grace(seconds)*3/2, leastRoomWait))
	}
	var at time.Time
	if e.fail != nil {
		at = wait(e.failed, e.pod.Spec.TerminationGracePeriodSeconds)
	}
	if e.ending == nil {
		return at
	}
	grace := e.ending.Grace
	if grace == nil {
		grace = e.pod.Spec.TerminationGracePeriodSeconds
	}
	if ends := wait(e.ending.Since, grace); at.IsZero() || ends.Before(at) {
		at = ends
	}
	return at
}

// overdue says that the pod should have left. Something of it cannot be ended: nobody waits for it any longer.
func (e *entry) overdue(now time.Time) bool {
	at := e.leaves()
	return !at.IsZero() && !now.Before(at)
}

// roomDue is when it is looked again at pods that wait for the end of others.
type roomDue struct{}

// awaitRoom has the pods that wait looked at again when the first of those that end should have left.
func (a *actor) awaitRoom(ctx supervisors.Context) {
	now, next := ctx.Now(), time.Time{}
	for _, e := range a.entries {
		if at := e.leaves(); at.After(now) && a.holdsRoom(e) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() || a.roomAt.After(now) && !next.Before(a.roomAt) {
		return
	}
	a.roomAt = next
	ctx.After(next.Sub(now)+roomDueSlack, roomDue{})
}

// roomDue tells of the pods that were ended for another and have not left in time, and looks again at those that wait.
func (a *actor) roomDue(ctx supervisors.Context) {
	for _, e := range a.entries {
		if e.fail != nil && !e.stuck && a.holdsRoom(e) && e.overdue(ctx.Now()) {
			e.stuck = true
			ctx.Log().Warn("a pod that is ended to make room does not end; a critical pod is started all the same", "pod",
				fullName(e.pod),
				"podUID", e.pod.UID, "reason", e.fail.Reason)
			tellEvent(ctx, e.pod, messages.EventExceededGracePeriod,
				"Container runtime did not kill the pod within specified grace period.")
		}
	}
	a.reconsider(ctx)
	if len(a.waits) > 0 {
		a.awaitRoom(ctx)
	}
}

// tellEvent has an Event written about a pod.
func tellEvent(ctx supervisors.Context, pod *v1.Pod, reason, message string) {
	ctx.Tell(messages.Events, messages.PodEvent(pod, "", v1.EventTypeWarning, reason, message, ctx.Now()))
}

func metaNow(ctx supervisors.Context) metav1.Time { return metav1.NewTime(ctx.Now()) }
