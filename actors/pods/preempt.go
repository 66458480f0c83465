package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// preempt ends other pods so that there is room for a critical one, and reports whether there will be. What is ending already
// is counted on, and nothing more is ended than is lacking besides.
func (a *actor) preempt(ctx supervisors.Context, r *room, w want, claim *admission.Claim) bool {
	staying := a.claims(func(e *entry) bool { return e.ending != nil || e.fail != nil })
	refusal := admission.Admit(r.node, admission.NewLedger(slices.Concat(staying, r.reserved)...), claim)
	if !refusal.Refused() {
		return true
	}
	victims, ok := admission.Victims(w.pod, staying, refusal.Lacks)
	if !ok {
		return false
	}
	for _, v := range victims {
		e := a.entries[string(v.Pod.UID)]
		e.fail = &messages.PodFailure{
			Reason: messages.ReasonPreempting, Message: "Preempted in order to admit critical pod",
			Disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
		}
		ctx.Log().Warn("a pod is ended to make room for a critical one", "pod", fullName(e.pod), "podUID", e.pod.UID,
			"for", fullName(w.pod), "lacks", refusal.Message)
		tellEvent(ctx, e.pod, e.fail.Reason, e.fail.Message)
		a.renew(ctx, e)
	}
	a.clear(r)
	return true
}

// tellEvent has an Event written about a pod.
func tellEvent(ctx supervisors.Context, pod *v1.Pod, reason, message string) {
	ctx.Tell(messages.Events, messages.PodEvent(pod, "", v1.EventTypeWarning, reason, message, ctx.Now()))
}

func metaNow(ctx supervisors.Context) metav1.Time { return metav1.NewTime(ctx.Now()) }
