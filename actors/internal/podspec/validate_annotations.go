package podspec

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// deletionCostKey ranks pods of one owner when some are taken away (KEP-2255).
const deletionCostKey = "controller.kubernetes.io/pod-deletion-cost"

func (v *validator) deletionCost(at *field.Path) {
	value, ok := v.pod.Annotations[deletionCostKey]
	if !ok {
		return
	}
	if cost, err := strconv.ParseInt(value, 10, 32); err != nil || strconv.FormatInt(cost, 10) != value {
		v.invalid(at.Key(deletionCostKey), value, "must be a whole number of 32 bits, in plain decimals")
	}
}

// withPrefix returns the annotations whose key begins with prefix, in order, as key and rest of the key.
func withPrefix(annotations map[string]string, prefix string) [][2]string {
	var found [][2]string
	for key := range annotations {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			found = append(found, [2]string{key, rest})
		}
	}
	slices.SortFunc(found, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return found
}

func (v *validator) appArmorAnnotations(at *field.Path) {
	for _, found := range withPrefix(v.pod.Annotations, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
		key, container := found[0], found[1]
		value := v.pod.Annotations[key]
		if profile := appArmorFromAnnotation(value); profile == nil && value != "" {
			v.invalid(at.Key(key), value, "must be runtime/default, unconfined or localhost/<profile>")
		}
		if !v.hasContainer(container) {
			v.invalid(at.Key(key), container, "no container has this name")
		}
	}
	v.appArmorAgrees()
}

// appArmorAgrees refuses a container for which annotation and field say different things.
func (v *validator) appArmorAgrees() {
	for c, path := range everyContainer(v.spec, field.NewPath("spec")) {
		value, ok := v.pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		said := appArmorFromAnnotation(value)
		if !ok || said == nil || c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil {
			continue
		}
		if !sameAppArmor(said, c.SecurityContext.AppArmorProfile) {
			v.forbidden(path.Child("securityContext", "appArmorProfile"), "the AppArmor annotation says otherwise")
		}
	}
}

// seccompAnnotations checks the annotations from before the field. Runtimes have had nothing from them since
// Kubernetes 1.27, so that one without a field would be a restriction that nobody keeps.
func (v *validator) seccompAnnotations(at *field.Path) {
	keys := withPrefix(v.pod.Annotations, v1.SeccompContainerAnnotationKeyPrefix)
	if _, ok := v.pod.Annotations[v1.SeccompPodAnnotationKey]; ok {
		keys = append(keys, [2]string{v1.SeccompPodAnnotationKey, ""})
	}
	for _, found := range keys {
		key, container := found[0], found[1]
		value := v.pod.Annotations[key]
		said := seccompFromAnnotation(value)
		if said == nil {
			v.invalid(at.Key(key), value, "must be runtime/default, unconfined or localhost/<file>")
			continue
		}
		v.pathInside(at.Key(key), deref(said.LocalhostProfile))
		if set := v.seccompOf(container); set != nil &&
			(set.Type != said.Type || deref(set.LocalhostProfile) != deref(said.LocalhostProfile)) {
			v.invalid(at.Key(key), value, "securityContext.seccompProfile says otherwise")
		}
	}
}

// seccompOf returns the profile in the field of the named container, or of the pod where the name is empty.
func (v *validator) seccompOf(container string) *v1.SeccompProfile {
	if container == "" {
		if v.spec.SecurityContext == nil {
			return nil
		}
		return v.spec.SecurityContext.SeccompProfile
	}
	for c := range everyContainer(v.spec) {
		if c.Name == container && c.SecurityContext != nil {
			return c.SecurityContext.SeccompProfile
		}
	}
	return nil
}

func seccompFromAnnotation(value string) *v1.SeccompProfile {
	switch value {
	case v1.SeccompProfileRuntimeDefault, v1.DeprecatedSeccompProfileDockerDefault:
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	case v1.SeccompProfileNameUnconfined:
		return &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
	}
	file, ok := strings.CutPrefix(value, v1.SeccompLocalhostProfileNamePrefix)
	if !ok {
		return nil
	}
	return &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
}

func (v *validator) hasContainer(name string) bool {
	for c := range everyContainer(v.spec) {
		if c.Name == name {
			return true
		}
	}
	return false
}
