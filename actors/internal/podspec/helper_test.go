package podspec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// podFrom decodes a manifest, strictly, so that a misspelt test fails.
func podFrom(t testing.TB, manifest string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), pod); err != nil {
		t.Fatalf("the test's own manifest: %v\n%s", err, manifest)
	}
	return pod
}

// aPod returns a valid manifest with the given lines of a pod's spec. A spec without containers gets one.
func aPod(spec string) string {
	if !strings.HasPrefix(spec, "containers:") && !strings.Contains(spec, "\ncontainers:") {
		spec += "\ncontainers: [{name: main, image: busybox}]"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec:\n" + indent(spec, "  ")
}

// aContainer returns aPod with the given lines in its container.
func aContainer(lines string) string {
	return aPod("containers:\n- name: main\n  image: busybox\n" + indent(lines, "  ") + "\nvolumes: [{name: v, emptyDir: {}}]")
}

// anInitContainer returns aPod with the given lines in an init container.
func anInitContainer(lines string) string {
	return aPod("initContainers:\n- name: first\n  image: busybox\n" + indent(lines, "  "))
}

// aVolume returns aPod with a volume of the given source.
func aVolume(source string) string {
	return aPod("volumes:\n- name: v\n" + indent(source, "  "))
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}

// kinds reduces errors to field and type, and drops repetitions, which only differ in wording.
func kinds(errs field.ErrorList) []string {
	found := []string{}
	for _, err := range errs {
		kind := err.Field + ": " + err.Type.String()
		if len(found) == 0 || found[len(found)-1] != kind {
			found = append(found, kind)
		}
	}
	return found
}
