package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// resources checks the requests and limits of a container or a pod.
func (v *validator) resources(r *v1.ResourceRequirements, at *field.Path) {
	limits, requests := at.Child("limits"), at.Child("requests")
	for _, name := range sortedKeys(r.Limits) {
		v.amount(limits.Key(string(name)), name, r.Limits[name])
	}
	for _, name := range sortedKeys(r.Requests) {
		here, request := requests.Key(string(name)), r.Requests[name]
		v.amount(here, name, request)
		limit, limited := r.Limits[name]
		switch {
		case !limited && isHugePages(name):
			v.required(limits.Key(string(name)), "there is a request, and this resource cannot be overcommitted")
		case limited && isHugePages(name) && request.Cmp(limit) != 0:
			v.invalid(here, request.String(), fmt.Sprintf("must equal the limit of %s", limit.String()))
		case limited && request.Cmp(limit) > 0:
			v.invalid(here, request.String(), fmt.Sprintf("must not exceed the limit of %s", limit.String()))
		}
	}
	names := slices.Concat(sortedKeys(r.Limits), sortedKeys(r.Requests))
	others := slices.Contains(names, v1.ResourceCPU) || slices.Contains(names, v1.ResourceMemory)
	if slices.ContainsFunc(names, isHugePages) && !others {
		v.forbidden(at, "huge pages need cpu or memory beside them")
	}
}

// amount checks one quantity: not negative, and whole pages of huge pages.
func (v *validator) amount(at *field.Path, name v1.ResourceName, amount resource.Quantity) {
	if amount.Sign() < 0 {
		v.invalid(at, amount.String(), "must not be negative")
	}
	if !isHugePages(name) {
		return
	}
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	switch {
	case err != nil || size.Value() <= 0 || size.MilliValue()%1000 != 0:
		v.invalid(at, name, "must end in the size of a page, such as hugepages-2Mi")
	case amount.Value()%size.Value() != 0:
		v.invalid(at, amount.String(), fmt.Sprintf("must be a multiple of the page size %s", size.String()))
	}
}

// podResources checks the resources of the pod as a whole (KEP-2837).
func (v *validator) podResources(at *field.Path) {
	r := v.spec.Resources
	if r == nil {
		return
	}
	v.resources(r, at)
	v.enough(at.Child("requests"), r.Requests, containerRequests(v.pod))
	hugePages := v1.ResourceList{}
	addMissing(hugePages, containerLimits(v.pod), isHugePages)
	v.enough(at.Child("limits"), r.Limits, hugePages)
	for i := range v.spec.Containers {
		list := v.spec.Containers[i].Resources.Limits
		for _, name := range sortedKeys(list) {
			limit, podLimit := list[name], r.Limits[name]
			if _, ok := r.Limits[name]; ok && limit.Cmp(podLimit) > 0 {
				v.invalid(field.NewPath("spec", "containers").Index(i).Child("resources", "limits").Key(string(name)),
					limit.String(), fmt.Sprintf("must not exceed the pod's limit of %s", podLimit.String()))
			}
		}
	}
}

// enough reports the pod's resources that are less than its containers' needs; unset ones are not compared.
func (v *validator) enough(at *field.Path, pod, containers v1.ResourceList) {
	for _, name := range sortedKeys(containers) {
		need, have := containers[name], pod[name]
		if _, ok := pod[name]; ok && need.Cmp(have) > 0 {
			v.invalid(at.Key(string(name)), have.String(), fmt.Sprintf("the containers need %s", need.String()))
		}
	}
}
