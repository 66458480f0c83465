package translate

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// seccompProfile returns the container's profile, else the pod's, else the default by seccompDefault (KEP-2413).
func seccompProfile(pod *v1.Pod, container *v1.Container, node NodeFacts) (*runtimeapi.SecurityProfile, error) {
	own := ptr.Deref(container.SecurityContext, v1.SecurityContext{})
	p := cmp.Or(own.SeccompProfile, podSecurityContext(pod).SeccompProfile)
	runtimeDefault := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	switch {
	case p == nil && node.SeccompDefault:
		return runtimeDefault, nil
	case p == nil:
		return unconfined, nil
	}
	switch p.Type {
	case v1.SeccompProfileTypeUnconfined:
		return unconfined, nil
	case v1.SeccompProfileTypeRuntimeDefault:
		return runtimeDefault, nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("seccompProfile is of type Localhost without localhostProfile")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(node.SeccompProfileRoot, *p.LocalhostProfile),
		}, nil
	}
	// A kubelet before 1.38 runs the container unconfined.
	return nil, fmt.Errorf("seccompProfile has the unknown type %q", p.Type)
}

// apparmorProfile returns the profile in the CRI's current and in its older form, or nil and "". The container's field takes
// precedence over the old annotation, which static pods may still carry, and the annotation over the pod's field (KEP-24).
func apparmorProfile(pod *v1.Pod, container *v1.Container) (*runtimeapi.SecurityProfile, string, error) {
	own := ptr.Deref(container.SecurityContext, v1.SecurityContext{})
	p := cmp.Or(own.AppArmorProfile, annotatedAppArmor(pod.Annotations, container.Name), podSecurityContext(pod).AppArmorProfile)
	if p == nil {
		return nil, "", nil
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return nil, "", errors.New("appArmorProfile is of type Localhost without localhostProfile")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile, nil
	}
	return nil, "", fmt.Errorf("appArmorProfile has the unknown type %q", p.Type)
}

func annotatedAppArmor(annotations map[string]string, container string) *v1.AppArmorProfile {
	value := annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]
	switch value {
	case "":
		return nil
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}
