// Package flagvalue has the values of flags that have a syntax of their own.
package flagvalue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Address is an IP address. An empty value, such as a unit's empty variable, keeps the earlier one. The address is validated
// together with the file's.
type Address struct{ To *string }

// String implements pflag.Value.
func (a Address) String() string { return *a.To }

// Type implements pflag.Value.
func (Address) Type() string { return "string" }

// Set implements pflag.Value.
func (a Address) Set(s string) error {
	*a.To = cmp.Or(s, *a.To)
	return nil
}

// Taints is a comma-separated list of key[=value]:effect. A later use replaces an earlier one.
type Taints struct{ To *[]corev1.Taint }

// String implements pflag.Value.
func (v *Taints) String() string {
	if v.To == nil {
		return ""
	}
	said := make([]string, 0, len(*v.To))
	for _, t := range *v.To {
		said = append(said, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}
	return strings.Join(said, ",")
}

// Type implements pflag.Value.
func (v *Taints) Type() string { return "taints" }

// Set implements pflag.Value.
func (v *Taints) Set(s string) error {
	var taints []corev1.Taint
	for one := range strings.SplitSeq(s, ",") {
		if one == "" {
			continue
		}
		taint, err := parseTaint(one)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(taints, func(other corev1.Taint) bool { return other.MatchTaint(taint) }) {
			return fmt.Errorf("taint %q: key and effect appear twice", one)
		}
		taints = append(taints, *taint)
	}
	*v.To = taints
	return nil
}

func parseTaint(s string) (*corev1.Taint, error) {
	pair, effect, found := strings.Cut(s, ":")
	if !found || strings.Contains(effect, ":") {
		return nil, fmt.Errorf("taint %q is not of the form key[=value]:effect", s)
	}
	key, value, _ := strings.Cut(pair, "=")
	taint := &corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	if err := CheckTaint(*taint); err != nil {
		return nil, fmt.Errorf("taint %q: %w", s, err)
	}
	if effect == "" {
		return nil, fmt.Errorf("taint %q has no effect", s)
	}
	return taint, nil
}

// CheckTaint returns an error if a node cannot register with the taint.
func CheckTaint(t corev1.Taint) error {
	if errs := validation.IsQualifiedName(t.Key); len(errs) > 0 {
		return fmt.Errorf("key %q: %s", t.Key, strings.Join(errs, ", "))
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Errorf("value %q: %s", t.Value, strings.Join(errs, ", "))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return nil
	}
	return fmt.Errorf("effect %q is none of NoSchedule, PreferNoSchedule, NoExecute", t.Effect)
}
