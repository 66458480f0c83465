package container

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What a runtime cannot do is never asked of it: it would be passed over in silence.
func TestRecursiveReadOnly(t *testing.T) {
	for _, c := range []struct {
		mode                  v1.RecursiveReadOnlyMode
		able, asked, mistaken bool
	}{
		{"", true, false, false},
		{v1.RecursiveReadOnlyDisabled, true, false, false},
		{v1.RecursiveReadOnlyIfPossible, true, true, false},
		{v1.RecursiveReadOnlyIfPossible, false, false, false},
		{v1.RecursiveReadOnlyEnabled, true, true, false},
		{v1.RecursiveReadOnlyEnabled, false, false, true},
	} {
		mount := v1.VolumeMount{MountPath: "/v", ReadOnly: true}
		if c.mode != "" {
			mount.RecursiveReadOnly = &c.mode
		}
		asked, err := recursiveReadOnly(&mount, c.able)
		if asked != c.asked || (err != nil) != c.mistaken {
			t.Errorf("%q, able %v: asked %v, %v", c.mode, c.able, asked, err)
		}
	}
}
