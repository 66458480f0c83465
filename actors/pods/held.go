package pods

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// fields is what one version of a pod sets that is not supported. It is computed once: it walks the whole spec, and all pods that
// are held are looked at again at each change.
type fields struct {
	of  *v1.Pod
	why *messages.Reason
}

// unsupported is why a pod of the API server cannot be run here as it is meant. A source of manifests refuses such a one, and
// admission one that is for another operating system and has not begun.
func (a *actor) unsupported(e *entry) *messages.Reason {
	pod := e.want.pod
	foreign := pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux
	if e.want.source != messages.APIServer || foreign && (pod.Status.StartTime == nil || final(&pod.Status)) {
		return nil
	}
	if e.fields.of != pod {
		e.fields = fields{pod, a.findUnsupported(pod)}
	}
	return e.fields.why
}

func (a *actor) findUnsupported(pod *v1.Pod) *messages.Reason {
	var names []string
	for _, e := range podspec.Unsupported(pod) {
		if !slices.Contains(names, e.Field) {
			names = append(names, e.Field)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &messages.Reason{
		Code: messages.ReasonUnsupported, Permanent: true,
		Message: "the pod waits, since it sets what Playlet does not support yet: " + strings.Join(names, ", "),
	}
}

// hold lets a pod wait; it is looked at again whenever something changes. Where it is not quiet, what it waits for is logged and
// an Event written of it when that is new, and its status is told for each version of the pod.
func (a *actor) hold(ctx supervisors.Context, e *entry, why messages.Reason, quiet bool) {
	shown := why
	if shown.Since = ctx.Now(); e.why != nil && e.why.Code == why.Code {
		shown.Since = e.why.Since
	}
	e.why, e.quiet = &shown, quiet
	was, pod := e.reported, e.want.pod
	taken := why.Code == messages.ReasonNameTaken || why.Code == messages.ReasonPredecessorEnding
	if taken && e.nameless != why.Code {
		e.nameless = why.Code
		recordWait(ctx, pod, why.Code, why.Message) // of which a status would be another pod's
	}
	if quiet || was.pod == pod && was.why == why {
		return
	}
	e.reported.pod, e.reported.why = pod, why
	if was.why != why {
		ctx.Log().Warn("a pod is held", "pod", e.name, "podUID", e.uid, "reason", why.Code, "message", why.Message)
		if e.found == nil && why.Code != messages.ReasonPreempting {
			recordWait(ctx, pod, why.Code, why.Message)
		}
	}
	a.tellStatus(ctx, e)
}

// tellStatus tells the status of one pod, but for one that no source ever named.
func (a *actor) tellStatus(ctx supervisors.Context, e *entry) {
	if a.opts.Cluster && !e.orphan() {
		ctx.Tell(messages.Status, e.statusWanted())
	}
}

// tellStatuses tells those of all pods.
func (a *actor) tellStatuses(ctx supervisors.Context) {
	if !a.opts.Cluster {
		return
	}
	m := messages.PodStatusesWanted{Heard: a.allHeard() && a.unready() == nil}
	for _, e := range a.entries {
		if e.state != unclaimed && (e.state != held || e.why != nil && !e.quiet) && !e.orphan() {
			m.Pods = append(m.Pods, e.statusWanted())
		}
	}
	slices.SortFunc(m.Pods, func(x, y messages.PodStatusWanted) int { return strings.Compare(x.UID, y.UID) })
	ctx.Tell(messages.Status, m)
}

// statusWanted is what the API server is told of a pod. Of one that is held and runs, as another agent left it, nothing is said.
func (e *entry) statusWanted() messages.PodStatusWanted {
	out := messages.PodStatusWanted{UID: e.uid, Pod: e.pod, Static: e.source != messages.APIServer, Status: e.status,
		Over: e.state == over}
	if e.state == held {
		out.Pod, out.Static = e.want.pod, e.want.source != messages.APIServer
		if e.found == nil {
			out.Status = &v1.PodStatus{Phase: v1.PodPending, Reason: e.why.Code, Message: e.why.Message,
				ObservedGeneration: out.Pod.Generation}
		}
	}
	return out
}
