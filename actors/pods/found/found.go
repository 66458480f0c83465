// Package found derives the end and the claims of a pod without a record from the runtime's containers and sandboxes.
package found

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Pod returns a pod made from the runtime's facts, sufficient for a graceful end. It lists no containers; the found ones carry
// their hooks in annotations.
func Pod(f *messages.PodFacts) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f.Name, Namespace: f.Namespace, UID: types.UID(f.UID)}}
	grace := int64(-1)
	for _, c := range f.Containers {
		for _, key := range []string{cri.AnnotationDeletionGracePeriod, cri.AnnotationTerminationGracePeriod} {
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 64); err == nil {
				grace = max(grace, n)
				break
			}
		}
	}
	if grace >= 0 {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

// Claim returns the claim of a found pod, from its record and from the annotations of its containers. For a pod of a kubelet the
// ports are known, but not the requests.
func Claim(f *messages.PodFacts, kept *podspec.Allocation) *admission.Claim {
	p := Pod(f)
	named := map[string]bool{}
	for i := range f.Containers { // newest first
		c := &f.Containers[i]
		if named[c.Name] || c.State == messages.ContainerExited {
			continue
		}
		named[c.Name] = true
		spec := v1.Container{Name: c.Name}
		// An unreadable annotation counts as absent: anybody may have written it.
		if json.Unmarshal([]byte(c.Annotations[cri.AnnotationPorts]), &spec.Ports) != nil {
			spec.Ports = nil
		}
		own, pods := translate.MadeWith(c.Annotations)
		spec.Resources, p.Spec.Resources = ptr.Deref(own, spec.Resources), cmp.Or(p.Spec.Resources, ofPod(pods))
		p.Spec.Containers = append(p.Spec.Containers, spec)
	}
	return admission.NewClaim(kept.In(p))
}

// Allocation returns the allocation of a pod of the API server without a record: the resources that its containers carry or, if a
// kubelet created them, the reported ones. It returns nil if they equal the pod's request.
func Allocation(p *v1.Pod, found *messages.PodFacts) *podspec.Allocation {
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

// madeWith returns the resources that the newest container of this name carries, or nil if none are readable.
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

// ofPod returns a pod's own resources as a container carries them, or nil for a pod without any.
func ofPod(carried *v1.ResourceRequirements) *v1.ResourceRequirements {
	if carried == nil || len(carried.Limits) == 0 && len(carried.Requests) == 0 {
		return nil
	}
	return carried
}

// reportedOfPod returns the pod's own resources as a kubelet reported them, or else as requested. Limits in a status are rounded
// like the kernel's, memory to pages, so that a difference in rounding alone is no resize. Nor is a difference in requests that
// include an overhead.
func reportedOfPod(p *v1.Pod) *v1.ResourceRequirements {
	s := p.Status.Resources
	if s == nil || len(p.Status.AllocatedResources) == 0 || p.Spec.Overhead != nil ||
		equality.Semantic.DeepEqual(p.Status.AllocatedResources, translate.PodRequests(p)) &&
			pages(s.Limits) == pages(p.Spec.Resources.Limits) {
		return p.Spec.Resources
	}
	return &v1.ResourceRequirements{Limits: s.Limits, Requests: p.Status.AllocatedResources}
}

// reportedResources returns the resources of a kubelet's container from its status, or nil if they equal the request. A limit of
// CPU in a status is rounded like the kernel's, so that its difference alone is no resize.
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

// pages returns the memory limit in pages.
func pages(limits v1.ResourceList) int64 { return limits.Memory().Value() / int64(os.Getpagesize()) }
