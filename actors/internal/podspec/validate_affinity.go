package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
	maxWeight      = 100
)

func (v *validator) affinity(at *field.Path) {
	affinity := v.spec.Affinity
	if affinity == nil {
		return
	}
	if affinity.NodeAffinity != nil {
		v.nodeAffinity(affinity.NodeAffinity, at.Child("nodeAffinity"))
	}
	if pods := affinity.PodAffinity; pods != nil {
		v.podTerms(at.Child("podAffinity"), pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pods := affinity.PodAntiAffinity; pods != nil {
		v.podTerms(at.Child("podAntiAffinity"), pods.RequiredDuringSchedulingIgnoredDuringExecution,
			pods.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (v *validator) nodeAffinity(nodes *v1.NodeAffinity, at *field.Path) {
	if required := nodes.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := at.Child(requiredTerms, "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			v.required(terms, "")
		}
		for i := range required.NodeSelectorTerms {
			v.nodeTerm(&required.NodeSelectorTerms[i], terms.Index(i), true)
		}
	}
	for i := range nodes.PreferredDuringSchedulingIgnoredDuringExecution {
		term := &nodes.PreferredDuringSchedulingIgnoredDuringExecution[i]
		here := at.Child(preferredTerms).Index(i)
		v.between(here.Child("weight"), int64(term.Weight), 1, maxWeight)
		v.nodeTerm(&term.Preference, here.Child("preference"), false)
	}
}

// nodeTerm checks one term; the values of one that is only preferred may be any.
func (v *validator) nodeTerm(term *v1.NodeSelectorTerm, at *field.Path, required bool) {
	for i := range term.MatchExpressions {
		r, here := &term.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		v.nodeRequirement(r, here)
		v.add(metav1validation.ValidateLabelName(r.Key, here.Child("key"))...)
		for j, value := range r.Values {
			if required {
				v.invalid(here.Child("values").Index(j), value, validation.IsValidLabelValue(value)...)
			}
		}
	}
	for i := range term.MatchFields {
		r, here := &term.MatchFields[i], at.Child("matchFields").Index(i)
		oneOf(&v.checker, here.Child("operator"), r.Operator, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
		oneOf(&v.checker, here.Child("key"), r.Key, metav1.ObjectNameField)
		if len(r.Values) != 1 {
			v.required(here.Child("values"), "a field is compared with exactly one")
		}
		for j, value := range r.Values {
			v.subdomain(here.Child("values").Index(j), value)
		}
	}
}

func (v *validator) nodeRequirement(r *v1.NodeSelectorRequirement, at *field.Path) {
	values := at.Child("values")
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			v.required(values, "operators In and NotIn need at least one")
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			v.forbidden(values, "operators Exists and DoesNotExist take none")
		}
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			v.required(values, "operators Gt and Lt need exactly one")
		}
	default:
		v.add(field.NotSupported(at.Child("operator"), r.Operator, []v1.NodeSelectorOperator{
			v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist,
			v1.NodeSelectorOpGt, v1.NodeSelectorOpLt}))
	}
}

func (v *validator) podTerms(at *field.Path, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	for i := range required {
		v.podTerm(&required[i], at.Child(requiredTerms).Index(i))
	}
	for i := range preferred {
		here := at.Child(preferredTerms).Index(i)
		v.between(here.Child("weight"), int64(preferred[i].Weight), 1, maxWeight)
		v.podTerm(&preferred[i].PodAffinityTerm, here.Child("podAffinityTerm"))
	}
}

func (v *validator) podTerm(term *v1.PodAffinityTerm, at *field.Path) {
	v.selector(at.Child("labelSelector"), term.LabelSelector)
	v.selector(at.Child("namespaceSelector"), term.NamespaceSelector)
	for i, namespace := range term.Namespaces {
		v.label(at.Child("namespaces").Index(i), namespace)
	}
	if term.TopologyKey == "" {
		v.required(at.Child("topologyKey"), "")
	} else {
		v.add(metav1validation.ValidateLabelName(term.TopologyKey, at.Child("topologyKey"))...)
	}
	v.matchLabelKeys(at, term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector)
}

func (v *validator) selector(at *field.Path, selector *metav1.LabelSelector) {
	v.add(metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at)...)
}

// matchLabelKeys checks keys whose values are taken from the pod itself when it is scheduled (KEP-3633, KEP-3243).
func (v *validator) matchLabelKeys(at *field.Path, match, mismatch []string, selector *metav1.LabelSelector) {
	keys := func(child string, keys []string) {
		if len(keys) > 0 && selector == nil {
			v.forbidden(at.Child(child), "needs a labelSelector")
		}
		for i, key := range keys {
			v.add(metav1validation.ValidateLabelName(key, at.Child(child).Index(i))...)
		}
	}
	keys("matchLabelKeys", match)
	keys("mismatchLabelKeys", mismatch)
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			v.invalid(at.Child("matchLabelKeys").Index(i), key, "is among the mismatchLabelKeys too")
		}
	}
}
