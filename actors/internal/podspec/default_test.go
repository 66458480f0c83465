package podspec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestDefaultMatchesTheAPIServer compares the defaults with a recording of an API server (Kubernetes 1.36.3): the files
// NAME.want.yaml are its answers to NAME.in.yaml.
func TestDefaultMatchesTheAPIServer(t *testing.T) {
	inputs, err := filepath.Glob("testdata/default/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			pod := readPod(t, input)
			Default(pod)
			got, want := pretty(t, pod), pretty(t, readPod(t, strings.Replace(input, ".in.", ".want.", 1)))
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func readPod(t *testing.T, path string) *v1.Pod {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return podFrom(t, string(data))
}

func pretty(t testing.TB, pod *v1.Pod) string {
	t.Helper()
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefault_MovesAppArmorAnnotationIntoField(t *testing.T) {
	for _, test := range []struct{ name, annotation, spec, want string }{
		{"runtime", "runtime/default", "", `{"type":"RuntimeDefault"}`},
		{"unconfined", "unconfined", "", `{"type":"Unconfined"}`},
		{"localhost", "localhost/mine", "", `{"type":"Localhost","localhostProfile":"mine"}`},
		{"nameless", "localhost/", "", `null`},
		{"nonsense", "mine", "", `null`},
		{"same as the pod's", "unconfined", "securityContext: {appArmorProfile: {type: Unconfined}}", `null`},
		{"other than the pod's", "unconfined", "securityContext: {appArmorProfile: {type: RuntimeDefault}}",
			`{"type":"Unconfined"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podFrom(t, aPod(test.spec))
			pod.Annotations = map[string]string{
				v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": test.annotation,
			}
			Default(pod)
			var profile *v1.AppArmorProfile
			if sc := pod.Spec.Containers[0].SecurityContext; sc != nil {
				profile = sc.AppArmorProfile
			}
			got, err := json.Marshal(profile)
			if err != nil || string(got) != test.want {
				t.Errorf("got %s (%v), want %s", got, err, test.want)
			}
		})
	}
}

func TestDefaultLeavesAnAppArmorFieldAlone(t *testing.T) {
	pod := podFrom(t, aContainer("securityContext: {appArmorProfile: {type: RuntimeDefault}}"))
	pod.Annotations = map[string]string{
		v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": "unconfined",
	}
	Default(pod)
	if got := pod.Spec.Containers[0].SecurityContext.AppArmorProfile.Type; got != v1.AppArmorProfileTypeRuntimeDefault {
		t.Errorf("the field became %s", got)
	}
}

func TestDefaultCorrectsANegativeGracePeriod(t *testing.T) {
	pod := podFrom(t, aPod("terminationGracePeriodSeconds: -1"))
	Default(pod)
	if got := *pod.Spec.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}
