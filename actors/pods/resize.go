package pods

import (
	"cmp"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// foundAllocation is what a pod of the API server has of which nothing is kept: what its containers carry or, of those that a
// kubelet made, what it reported. nil: what it asks for.
func foundAllocation(p *v1.Pod, found *messages.PodFacts) *podspec.Allocation {
	out := podspec.AllocationOf(p)
	if out.Pod != nil {
		out.Pod = reportedOfPod(p)
	}
	if found != nil && len(found.Containers) > 0 { // the newest first
		if _, pods := translate.MadeWith(found.Containers[0].Annotations); pods != nil {
			out.Pod = ofPod(pods)
		}
	}
	for name, asks := range out.Containers {
		if was := madeWith(found, name); was != nil {
			out.Containers[name] = *was
		} else if was := reportedResources(asks, p, name); was != nil {
			out.Containers[name] = *was
		}
	}
	if out.IsOf(p) {
		return nil
	}
	return out
}

// madeWith is what the newest container of this name carries; nil where it carries nothing that can be read.
func madeWith(found *messages.PodFacts, name string) *v1.ResourceRequirements {
	if found == nil {
		return nil
	}
	newest := find.In(found.Containers, func(c *messages.ContainerFact) bool { return c.Name == name })
	if newest == nil {
		return nil
	}
	was, _ := translate.MadeWith(newest.Annotations)
	return was
}

// ofPod are a pod's own resources as a container carries them: nil for a pod that had none.
func ofPod(carried *v1.ResourceRequirements) *v1.ResourceRequirements {
	if carried == nil || len(carried.Limits) == 0 && len(carried.Requests) == 0 {
		return nil
	}
	return carried
}

// reportedOfPod are the pod's own resources as a kubelet reported them, or else as it asks for them. Limits in a status are
// rounded as the kernel has them, memory to pages, so that this alone tells no resize; nor do requests with an overhead in them.
func reportedOfPod(p *v1.Pod) *v1.ResourceRequirements {
	s := p.Status.Resources
	if s == nil || len(p.Status.AllocatedResources) == 0 || p.Spec.Overhead != nil ||
		equality.Semantic.DeepEqual(p.Status.AllocatedResources, translate.PodRequests(p)) &&
			pages(s.Limits) == pages(p.Spec.Resources.Limits) {
		return p.Spec.Resources
	}
	return &v1.ResourceRequirements{Limits: s.Limits, Requests: p.Status.AllocatedResources}
}

// reportedResources are those of a kubelet's container by its status; nil where they are those that it asks for. A limit of CPU
// in a status is rounded as the kernel has it, so that it alone tells no resize.
func reportedResources(asks v1.ResourceRequirements, p *v1.Pod, name string) *v1.ResourceRequirements {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.Name != name || s.Resources == nil || s.AllocatedResources == nil ||
			equality.Semantic.DeepEqual(s.AllocatedResources, asks.Requests) &&
				s.Resources.Limits.Memory().Cmp(*asks.Limits.Memory()) == 0 {
			continue
		}
		return &v1.ResourceRequirements{Limits: s.Resources.Limits, Requests: s.AllocatedResources, Claims: asks.Claims}
	}
	return nil
}

// pages are those that memory is limited to.
func pages(limits v1.ResourceList) int64 { return limits.Memory().Value() / int64(os.Getpagesize()) }

// takePod has the entry be of the version of the pod that the source has. What was allocated to it stays.
func (e *entry) takePod() {
	was := e.pod
	if e.source = e.want.source; e.source == messages.APIServer && e.desired != nil {
		countRequested(e.desired, e.want.pod)
	}
	if e.source == messages.APIServer && e.allocation == nil && was != nil {
		if has := podspec.AllocationOf(was); !has.IsOf(e.want.pod) {
			e.allocation = has
		}
	}
	e.setPod(e.want.pod)
}

// setPod is the one place where a pod gets what was allocated to it: its actor has what the disk has, and others are admitted
// beside what was decided last. Until a resize is decided the pod is of the generation before: who waits for the resize reads its
// generation in the status first, and would take it for done.
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

// resize decides over all pods that ask for other resources than they have. Each is asked again when something has changed: what
// one gives back another may have.
func (a *actor) resize(ctx supervisors.Context) {
	var waiting []*entry
	for _, e := range a.entries {
		if e.state == running && e.source == messages.APIServer && e.admitted != e.desired && e.record.Final == nil {
			if e.since.IsZero() {
				e.since = ctx.Now()
			}
			waiting = append(waiting, e)
		} else if e.since = (time.Time{}); e.pending != nil && e.pod == e.desired { // it was taken back
			e.pending = nil
			a.renew(ctx, e)
		}
	}
	slices.SortFunc(waiting, func(x, y *entry) int {
		return cmp.Or(admission.Priority(x.desired, y.desired), x.since.Compare(y.since), int(x.order-y.order))
	})
	node := a.thisNode()
	for again := len(waiting) > 0; again; {
		again = false
		for _, e := range waiting {
			if e.admitted != e.desired && a.tryResize(ctx, node, e) {
				again = true
			}
		}
	}
	for _, e := range waiting {
		a.undecided = a.undecided || e.pending != nil && e.admitted != e.desired
	}
}

// tryResize reports whether the pod has what it asks for now. Its actor is told when that is on the disk.
func (a *actor) tryResize(ctx supervisors.Context, node *admission.Node, e *entry) bool {
	others := admission.NewLedger(slices.Concat(a.claims(func(o *entry) bool { return o == e }), a.foundClaims())...)
	reason, message, detail := admission.Resize(node, others, a.claimOf(e), admission.NewClaim(e.desired))
	if reason == "" {
		r := e.record
		r.Allocated = podspec.AllocationOf(e.desired)
		a.keep(ctx, e, r)
		if e.pending != nil && e.pending.Reason == v1.PodReasonDeferred {
			metrics.DeferredResizes.WithLabelValues(a.trigger).Inc()
		}
		e.admitted, e.since = e.desired, time.Time{}
		ctx.Log().Info("a resize of a pod is admitted", "pod", e.name, "podUID", e.uid, "generation", e.desired.Generation)
		return true
	}
	now := messages.PendingResize{Reason: reason, Message: message}
	if e.pending == nil || *e.pending != now || e.pendingOf != e.desired.Generation {
		if e.pending == nil || e.pending.Reason != reason || e.pendingOf != e.desired.Generation {
			ctx.Log().Warn("a resize of a pod is not admitted", "pod", e.name, "podUID", e.uid, "reason", reason,
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

// allocated takes that the disk has what was allocated to a pod: its actor is to have it.
func (e *entry) allocated() {
	if l := e.kept.Allocated; l != nil && e.hasActor() && e.desired != nil {
		e.allocation = l
		if e.setPod(e.desired); e.pod == e.desired {
			e.pending = nil
		}
	}
}

// countRequested counts what a new version of a pod asks to change of containers that can be resized.
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

// operationOf is the kubelet's word for the change of a quantity; empty where there is none.
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

// triggerOf is the kubelet's word for what had the resizes that wait looked at again.
func triggerOf(msg any) string {
	switch msg.(type) {
	case messages.SourcePodsWanted: // a pod asks for less, be it the one that waits or another
		return "pod_updated"
	case messages.PodStatusChanged:
		return "pod_terminated"
	case messages.PodEnded, messages.ChildStopped:
		return "pods_removed"
	}
	return "periodic_retry"
}
