package podspec

import (
	"errors"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// scheduling checks the fields that a node reads at admission too.
func (v *validator) scheduling(spec *field.Path) {
	v.add(metav1validation.ValidateLabels(v.spec.NodeSelector, spec.Child("nodeSelector"))...)
	for i := range v.spec.Tolerations {
		v.toleration(&v.spec.Tolerations[i], spec.Child("tolerations").Index(i))
	}
	if affinity := v.spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		const required = "requiredDuringSchedulingIgnoredDuringExecution"
		v.nodeSelector(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			spec.Child("affinity", "nodeAffinity", required))
	}
	for _, name := range sortedKeys(v.spec.Overhead) {
		v.amount(spec.Child("overhead").Key(string(name)), name, v.spec.Overhead[name])
	}
}

// nodeSelector checks the terms by the library that matches them. A node has to match one.
func (v *validator) nodeSelector(selector *v1.NodeSelector, at *field.Path) {
	if selector == nil {
		return
	}
	if len(selector.NodeSelectorTerms) == 0 {
		v.required(at.Child("nodeSelectorTerms"), "")
	}
	_, err := nodeaffinity.NewNodeSelector(selector, field.WithPath(at))
	if all, several := errors.AsType[utilerrors.Aggregate](err); several {
		for _, err := range all.Errors() {
			if wrong, ok := errors.AsType[*field.Error](err); ok {
				v.add(wrong)
			}
		}
	}
	for i, term := range selector.NodeSelectorTerms {
		for j, r := range term.MatchFields {
			key := at.Child("nodeSelectorTerms").Index(i).Child("matchFields").Index(j).Child("key")
			oneOf(&v.checker, key, r.Key, metav1.ObjectNameField)
		}
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
