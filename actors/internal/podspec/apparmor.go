package podspec

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// syncAppArmorAnnotations converts AppArmor's annotation, which preceded the field, into the field of a container without one, as
// the API server does at creation (KEP-24). An invalid value stays an annotation, which [Validate] rejects; so does a repetition
// of the pod's value for all containers.
func syncAppArmorAnnotations(pod *v1.Pod) {
	for c := range Containers(&pod.Spec) {
		value, ok := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !ok || (c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil) {
			continue
		}
		profile := appArmorFromAnnotation(value)
		if profile == nil || sameAppArmor(profile, podAppArmor(&pod.Spec)) {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &v1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
}

func appArmorFromAnnotation(value string) *v1.AppArmorProfile {
	switch value {
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	}
	name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok || !isAppArmorName(name) {
		return nil
	}
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
}

func podAppArmor(spec *v1.PodSpec) *v1.AppArmorProfile {
	if spec.SecurityContext == nil {
		return nil
	}
	return spec.SecurityContext.AppArmorProfile
}

func sameAppArmor(a, b *v1.AppArmorProfile) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && ptr.Equal(a.LocalhostProfile, b.LocalhostProfile)
}

// appArmorAnnotations checks each annotation, and that it agrees with the field of its container.
func (v *validator) appArmorAnnotations(at *field.Path) {
	const prefix = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	names := map[string]bool{}
	for c, path := range Containers(v.spec, field.NewPath("spec")) {
		names[c.Name] = true
		said := appArmorFromAnnotation(v.pod.Annotations[prefix+c.Name])
		set := c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil
		if said != nil && set && !sameAppArmor(said, c.SecurityContext.AppArmorProfile) {
			v.forbidden(path.Child("securityContext", "appArmorProfile"), "the AppArmor annotation has a different value")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.pod.Annotations)) {
		container, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if value := v.pod.Annotations[key]; value != "" && appArmorFromAnnotation(value) == nil {
			v.invalid(at.Key(key), value, "must be runtime/default, unconfined or localhost/<profile>")
		}
		if !names[container] {
			v.invalid(at.Key(key), container, "no container has this name")
		}
	}
}

// isAppArmorName reports whether name can be the name of a profile loaded on the node.
func isAppArmorName(name string) bool {
	return name != "" && len(name) <= maxAppArmorName && strings.TrimSpace(name) == name
}
