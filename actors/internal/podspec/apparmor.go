package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// syncAppArmorAnnotations turns the annotation that AppArmor had before it had fields into the field, where the
// container has none, as the API server does when a pod is created (KEP-24). A value that means nothing stays an
// annotation, which [Validate] refuses; so does one that repeats what the pod says for all its containers.
func syncAppArmorAnnotations(pod *v1.Pod) {
	if isWindows(&pod.Spec) {
		return
	}
	for c := range everyContainer(&pod.Spec) {
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
	return a.Type == b.Type && deref(a.LocalhostProfile) == deref(b.LocalhostProfile)
}

// isAppArmorName tells whether name can be the name of a profile loaded on the node.
func isAppArmorName(name string) bool {
	return name != "" && len(name) <= maxAppArmorName && strings.TrimSpace(name) == name
}

func isWindows(spec *v1.PodSpec) bool {
	return spec.OS != nil && spec.OS.Name == v1.Windows
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
