package dra

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
)

// key names a ResourceClaim by its namespace and name.
type key = types.NamespacedName

// need is a ResourceClaim that a pod uses.
type need struct {
	key
	// owned is set if the claim was made for the pod, of a template.
	owned bool
}

// needOf returns the claim of an entry in the pod's spec. ok is false if the pod needs none. A claim of a template has its name
// in the pod's status; an entry there without a name means that none was needed.
func needOf(pod *v1.Pod, ref *v1.PodResourceClaim) (n need, ok bool, err error) {
	if ref.ResourceClaimName != nil {
		return need{key: key{Namespace: pod.Namespace, Name: *ref.ResourceClaimName}}, true, nil
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name != ref.Name {
			continue
		}
		if s.ResourceClaimName == nil {
			return need{}, false, nil
		}
		return need{key{Namespace: pod.Namespace, Name: *s.ResourceClaimName}, true}, true, nil
	}
	return need{}, false, messages.Cause{Code: messages.CauseClaimUnready, Kind: claimKind, Name: ref.Name}.Errorf(
		"no ResourceClaim has been generated yet for the pod's claim %s", ref.Name)
}

// needsOf returns the claims of a pod, each once. With extended, the claim of its extended resources is among them (KEP-5004).
func needsOf(pod *v1.Pod, extended bool) (out []need, err error) {
	add := func(n need) {
		if !slices.ContainsFunc(out, func(o need) bool { return o.key == n.key }) {
			out = append(out, n)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		n, ok, err := needOf(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if ok {
			add(n)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && extended {
		add(need{key: key{Namespace: pod.Namespace, Name: s.ResourceClaimName}})
	}
	return out, nil
}

const claimKind = "ResourceClaim"

// check returns the reason for which a pod cannot use a claim.
func (n need) check(pod *v1.Pod, claim *resourceapi.ResourceClaim) error {
	cause := messages.Cause{Code: messages.CauseClaimUnready, Kind: claimKind, Name: n.String()}
	switch {
	case n.owned && !metav1.IsControlledBy(claim, pod):
		return cause.Errorf("ResourceClaim %s was not created for pod %s (%s)", n, pod.Name, pod.UID)
	case !slices.Contains(reservers(claim), string(pod.UID)):
		return cause.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, n, claim.UID)
	case claim.Status.Allocation == nil:
		return cause.Errorf("ResourceClaim %s is not allocated", n)
	}
	return nil
}

// reservers returns the UIDs of the pods that a claim is reserved for.
func reservers(claim *resourceapi.ResourceClaim) (out []string) {
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			out = append(out, string(r.UID))
		}
	}
	return out
}

// driversOf returns the drivers with an allocated device, sorted.
func driversOf(claim *resourceapi.ResourceClaim) (out []string) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		out = append(out, r.Driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// use is a claim that a container uses.
type use struct {
	key
	claim    string   // its name in the pod's spec; empty: the claim of extended resources
	requests []string // the used requests; an empty one means all
}

// usesOf returns the claims of a container, in the order of the pod's. A claim that the pod does not need is skipped.
func usesOf(pod *v1.Pod, c *v1.Container, extended bool) (out []use, err error) {
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		u := use{claim: ref.Name}
		for _, r := range c.Resources.Claims {
			if r.Name == ref.Name {
				u.requests = append(u.requests, r.Request)
			}
		}
		if len(u.requests) == 0 {
			continue
		}
		n, ok, err := needOf(pod, ref)
		if err != nil {
			return nil, err
		}
		if u.key = n.key; ok {
			out = append(out, u)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && extended {
		u := use{key: key{Namespace: pod.Namespace, Name: s.ResourceClaimName}}
		for _, r := range s.RequestMappings {
			asked := c.Resources.Requests[v1.ResourceName(r.ResourceName)]
			if r.ContainerName == c.Name && !asked.IsZero() {
				u.requests = append(u.requests, r.RequestName)
			}
		}
		if len(u.requests) > 0 {
			out = append(out, u)
		}
	}
	return out, nil
}
