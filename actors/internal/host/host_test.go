package host

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What a runtime cannot do is never asked of it: it would be passed over in silence.
func TestStrictGroupsTakeARuntimeThatCan(t *testing.T) {
	strict := v1.SupplementalGroupsPolicyStrict
	pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}}}
	h := &Host{}
	if _, err := h.SandboxConfig(pod, 0); err == nil || !strings.Contains(err.Error(), "supplementalGroupsPolicy is Strict") {
		t.Errorf("for a runtime that says nothing: %v", err)
	}
	h.Abilities = func() Abilities { return Abilities{SupplementalGroupsPolicy: true} }
	if _, err := h.SandboxConfig(pod, 0); err != nil {
		t.Error(err)
	}
	merge := v1.SupplementalGroupsPolicyMerge
	pod.Spec.SecurityContext.SupplementalGroupsPolicy = &merge
	if _, err := (&Host{}).SandboxConfig(pod, 0); err != nil {
		t.Error(err)
	}
}
