package pods

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// takePod takes the source's current version of the pod. The allocation stays.
func (e *entry) takePod() {
	was := e.pod
	e.source, e.manifest = e.wanted.source, e.wanted.manifest
	if e.source == messages.APIServer && e.desired != nil {
		countRequested(e.desired, e.wanted.pod)
	}
	if e.source == messages.APIServer && e.allocation == nil && was != nil {
		if has := podspec.AllocationOf(was); !has.IsOf(e.wanted.pod) {
			e.allocation = has
		}
	}
	e.setPod(e.wanted.pod)
}

// recordMissing records an Event of an update that needs a feature which this node does not declare. The API server refuses such
// updates if its admission plugin for declared features is on. The update continues and is judged like any other.
func (a *actor) recordMissing(ctx supervisors.Context, e *entry) {
	if e.desired == nil || e.wanted.source != messages.APIServer {
		return
	}
	if text := a.opts.LocalNode.Node.MissingForUpdate(e.desired, e.wanted.pod); text != "" {
		ctx.Log().Warn("an update of a pod needs features that the node does not declare", "pod", e.name, "podUID", e.uid,
			"message", text)
		recordEvent(ctx, e.wanted.pod, messages.EventFeaturesMissing, text)
	}
}

// setPod is the only place that applies an allocation: the actor gets the one on disk, and other pods are admitted beside the
// latest one. Until a resize is decided the pod keeps its previous generation: a client that waits for the resize reads the
// generation in the status first, and would take the resize for done.
func (e *entry) setPod(desired *v1.Pod) {
	observed := desired.Status.ObservedGeneration
	if e.pod != nil {
		observed = e.pod.Generation
	}
	if e.desired, e.pod = desired, e.allocation.In(desired); e.pod != desired && e.pendingOf != desired.Generation {
		e.pod.Generation = observed
	}
	e.admitted = e.pod
	if l := e.record.Allocated; l != nil && l != e.allocation {
		e.admitted = l.In(desired)
	}
}

// resize decides about all pods with requests that differ from their allocation. Each is tried again after every grant: the
// resources that one pod returns may suffice for another.
func (a *actor) resize(ctx supervisors.Context) {
	var waiting []*entry
	for _, e := range a.entries {
		if e.state == running && e.source == messages.APIServer && e.admitted != e.desired && e.record.Final == nil {
			if e.since.IsZero() {
				e.since = ctx.Now()
			}
			waiting = append(waiting, e)
		} else if e.since = (time.Time{}); e.pending != nil && e.pod == e.desired { // it was withdrawn
			e.pending = nil
			a.renew(ctx, e)
		}
	}
	slices.SortFunc(waiting, func(x, y *entry) int {
		return cmp.Or(admission.Priority(x.desired, y.desired), x.since.Compare(y.since), int(x.order-y.order))
	})
	if len(waiting) == 0 {
		return
	}
	node := a.node.admits(&a.opts.LocalNode, a.opts.Cluster)
	for again := true; again; {
		again = false
		for _, e := range waiting {
			if e.admitted != e.desired && a.tryResize(ctx, node, e) {
				again = true
			}
		}
	}
	for _, e := range waiting {
		a.waiting.some = a.waiting.some || e.pending != nil && e.admitted != e.desired
	}
}

// tryResize reports whether the request is granted now. The actor is informed when the allocation is on disk.
func (a *actor) tryResize(ctx supervisors.Context, node *admission.Node, e *entry) bool {
	others := admission.NewLedger(slices.Concat(a.claims(func(o *entry) bool { return o == e }), a.reservedClaims())...)
	reason, message, detail := admission.Resize(node, others, a.claimOf(e), admission.NewClaim(e.desired))
	if reason == "" {
		r := e.record
		r.Allocated = podspec.AllocationOf(e.desired)
		a.keep(ctx, e, r)
		if e.pending != nil && e.pending.Reason == v1.PodReasonDeferred {
			metrics.DeferredResizes.WithLabelValues(a.waiting.trigger).Inc()
		}
		e.admitted, e.since = e.desired, time.Time{}
		ctx.Log().Info("admitted a pod resize", "pod", e.name, "podUID", e.uid, "generation", e.desired.Generation)
		return true
	}
	now := messages.PendingResize{Reason: reason, Message: message}
	if e.pending == nil || *e.pending != now || e.pendingOf != e.desired.Generation {
		if e.pending == nil || e.pending.Reason != reason || e.pendingOf != e.desired.Generation {
			ctx.Log().Warn("a pod resize was not admitted", "pod", e.name, "podUID", e.uid, "reason", reason,
				"message", message)
			recordEvent(ctx, e.pod, messages.EventResize+reason, message)
			if detail != "" {
				metrics.InfeasibleResizes.WithLabelValues(detail).Inc()
			}
		}
		e.pending, e.pendingOf = &now, e.desired.Generation
		e.setPod(e.desired)
		a.renew(ctx, e)
	}
	return false
}

// allocated applies an allocation that is on disk: it is sent to the actor next.
func (e *entry) allocated() {
	if l := e.saved.Allocated; l != nil && e.hasActor() && e.desired != nil {
		e.allocation = l
		if e.setPod(e.desired); e.pod == e.desired {
			e.pending = nil
		}
	}
}

// countRequested counts the changes that a new version of a pod requests of resizable containers.
func countRequested(was, now *v1.Pod) {
	had := podspec.AllocationOf(was).Containers
	for c := range podspec.Sized(now) {
		before, there := had[c.Name]
		if !there {
			continue
		}
		for _, name := range translate.ComputeResources {
			for of, list := range map[string][2]v1.ResourceList{
				"requests": {before.Requests, c.Resources.Requests}, "limits": {before.Limits, c.Resources.Limits},
			} {
				if operation := operationOf(list[0][name], list[1][name]); operation != "" {
					metrics.RequestedResizes.WithLabelValues(string(name), of, operation).Inc()
				}
			}
		}
	}
}

// operationOf returns the kubelet's term for the change of a quantity, or "" without a change.
func operationOf(was, now resource.Quantity) string {
	switch by := now.Cmp(was); {
	case by == 0:
		return ""
	case now.IsZero():
		return "remove"
	case was.IsZero():
		return "add"
	case by < 0:
		return "decrease"
	}
	return "increase"
}

// triggerOf returns the kubelet's term for the cause of a reconsideration of pending resizes.
func triggerOf(msg any) string {
	switch msg.(type) {
	case messages.SourcePodsWanted: // a pod requests less, be it a waiting one or another
		return "pod_updated"
	case messages.PodStatusChanged:
		return "pod_terminated"
	case messages.PodEnded, messages.ChildStopped:
		return "pods_removed"
	}
	return "periodic_retry"
}
