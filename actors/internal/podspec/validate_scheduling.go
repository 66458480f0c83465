package podspec

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scheduling checks what a scheduler reads. Nothing of it changes how a node runs the pod, but a manifest that the
// API server refuses here is refused here too.
func (v *validator) scheduling(spec *field.Path) {
	v.add(metav1validation.ValidateLabels(v.spec.NodeSelector, spec.Child("nodeSelector"))...)
	for i := range v.spec.Tolerations {
		v.toleration(&v.spec.Tolerations[i], spec.Child("tolerations").Index(i))
	}
	v.affinity(spec.Child("affinity"))
	v.topologySpread(spec.Child("topologySpreadConstraints"))
	ifSet(&v.checker, spec.Child("preemptionPolicy"), v.spec.PreemptionPolicy,
		v1.PreemptLowerPriority, v1.PreemptNever)
	v.gates(spec)
	if group := v.spec.SchedulingGroup; group != nil {
		v.subdomain(spec.Child("schedulingGroup", "podGroupName"), deref(group.PodGroupName))
	}
	for _, name := range sortedKeys(v.spec.Overhead) {
		v.amount(spec.Child("overhead").Key(string(name)), name, v.spec.Overhead[name])
	}
	v.evictionResponders(spec.Child("evictionResponders"))
}

func (v *validator) gates(spec *field.Path) {
	seen := map[string]bool{}
	for i, gate := range v.spec.SchedulingGates {
		at := spec.Child("schedulingGates").Index(i).Child("name")
		v.name(at, gate.Name, validation.IsQualifiedName)
		v.unique(at, seen, gate.Name)
	}
	if len(v.spec.SchedulingGates) > 0 && v.spec.NodeName != "" {
		v.forbidden(spec.Child("nodeName"), "may not be set while there are schedulingGates")
	}
}

func (v *validator) toleration(t *v1.Toleration, at *field.Path) {
	if t.Key != "" {
		v.add(metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
	}
	if t.Key == "" && t.Operator != v1.TolerationOpExists {
		v.invalid(at.Child("operator"), t.Operator, "must be Exists where there is no key")
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		v.invalid(at.Child("effect"), t.Effect, "must be NoExecute where there are tolerationSeconds")
	}
	if t.Effect != "" {
		oneOf(&v.checker, at.Child("effect"), t.Effect,
			v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
	}
	switch t.Operator {
	case v1.TolerationOpEqual, "":
		v.invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value)...)
	case v1.TolerationOpExists:
		if t.Value != "" {
			v.invalid(at.Child("value"), t.Value, "may not be set where operator is Exists")
		}
	case v1.TolerationOpLt, v1.TolerationOpGt:
		if n, err := strconv.ParseInt(t.Value, 10, 64); err != nil || strconv.FormatInt(n, 10) != t.Value {
			v.invalid(at.Child("value"), t.Value, "must be a whole number where operator is Lt or Gt")
		}
	default:
		v.add(field.NotSupported(at.Child("operator"), t.Operator, []v1.TolerationOperator{
			v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpLt, v1.TolerationOpGt}))
	}
}

func (v *validator) topologySpread(at *field.Path) {
	type kind struct {
		key    string
		action v1.UnsatisfiableConstraintAction
	}
	seen := map[kind]bool{}
	for i := range v.spec.TopologySpreadConstraints {
		c, here := &v.spec.TopologySpreadConstraints[i], at.Index(i)
		v.atLeast(here.Child("maxSkew"), int64(c.MaxSkew), 1)
		if c.TopologyKey == "" {
			v.required(here.Child("topologyKey"), "")
		}
		oneOf(&v.checker, here.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		this := kind{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[this] {
			v.duplicate(here.Child("topologyKey"), c.TopologyKey)
		}
		seen[this] = true
		if c.MinDomains != nil {
			v.atLeast(here.Child("minDomains"), int64(*c.MinDomains), 1)
			if c.WhenUnsatisfiable != v1.DoNotSchedule {
				v.invalid(here.Child("minDomains"), *c.MinDomains, "needs whenUnsatisfiable to be DoNotSchedule")
			}
		}
		ifSet(&v.checker, here.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy,
			v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		ifSet(&v.checker, here.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy,
			v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		v.selector(here.Child("labelSelector"), c.LabelSelector)
		v.matchLabelKeys(here, c.MatchLabelKeys, nil, c.LabelSelector)
	}
}

// evictionResponders checks the new list of who answers an eviction (Kubernetes 1.37, alpha).
func (v *validator) evictionResponders(at *field.Path) {
	const most, mostPriority = 10, 100000
	if n := len(v.spec.EvictionResponders); n > most {
		v.add(field.TooMany(at, n, most))
	}
	seen := map[string]bool{}
	for i, responder := range v.spec.EvictionResponders {
		here := at.Index(i)
		v.add(validation.IsDomainPrefixedKey(here.Child("name"), responder.Name)...)
		v.unique(here.Child("name"), seen, responder.Name)
		v.between(here.Child("priority"), int64(deref(responder.Priority)), 0, mostPriority)
	}
	if len(v.spec.EvictionResponders) > 0 && v.spec.SchedulingGroup != nil {
		v.forbidden(at, "may not be set beside schedulingGroup")
	}
}
