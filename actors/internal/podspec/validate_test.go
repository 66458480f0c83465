package podspec

import (
	"slices"
	"strings"
	"testing"
)

// wrong is a manifest with the expected errors: field and kind of error, in the order in which they are found.
type wrong struct {
	name     string
	manifest string
	want     []string
}

func checkWrong(t *testing.T, tests []wrong) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := podFrom(t, test.manifest)
			Default(pod)
			errs := Validate(pod)
			if got := kinds(errs); !slices.Equal(got, test.want) {
				t.Errorf("got\n  %s\nwant\n  %s\nin full: %v",
					strings.Join(got, "\n  "), strings.Join(test.want, "\n  "), errs)
			}
		})
	}
}

// checkRight checks valid manifests that resemble invalid ones.
func checkRight(t *testing.T, manifests map[string]string) {
	t.Helper()
	for name, manifest := range manifests {
		t.Run(name, func(t *testing.T) {
			pod := podFrom(t, manifest)
			Default(pod)
			if errs := Validate(pod); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
		})
	}
}

func TestValidateSpeaksPlainly(t *testing.T) {
	pod := podFrom(t, aContainer("ports: [{containerPort: 80}, {containerPort: 70000}]"))
	Default(pod)
	errs := Validate(pod)
	const want = "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535"
	if len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs, want)
	}
}

func TestValidateMetadata(t *testing.T) {
	const rest = "\nspec: {containers: [{name: main, image: busybox}]}"
	checkWrong(t, []wrong{
		{"nameless operating system", aPod("os: {}"), []string{"spec.os.name: Required value"}},
		{"no name", "metadata: {namespace: default}" + rest, []string{"metadata.name: Required value"}},
		{"upper case", "metadata: {name: Web, namespace: default}" + rest, []string{"metadata.name: Invalid value"}},
		{"no namespace", "metadata: {name: web}" + rest, []string{"metadata.namespace: Required value"}},
		{"dotted namespace", "metadata: {name: web, namespace: a.b}" + rest,
			[]string{"metadata.namespace: Invalid value"}},
		{"label key", "metadata: {name: web, namespace: default, labels: {'a b': c}}" + rest,
			[]string{"metadata.labels: Invalid value"}},
		{"label value", "metadata: {name: web, namespace: default, labels: {a: 'b c'}}" + rest,
			[]string{"metadata.labels: Invalid value"}},
		{"annotation key", "metadata: {name: web, namespace: default, annotations: {'a/b/c': d}}" + rest,
			[]string{"metadata.annotations: Invalid value"}},
		{"finalizer", "metadata: {name: web, namespace: default, finalizers: ['a b']}" + rest,
			[]string{"metadata.finalizers: Invalid value"}},
		{"AppArmor annotation",
			"metadata: {name: web, namespace: default, annotations: {container.apparmor.security.beta.kubernetes.io/main: mine}}" + rest,
			[]string{"metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: Invalid value"}},
		{"AppArmor annotation for nobody",
			"metadata: {name: web, namespace: default, annotations: {container.apparmor.security.beta.kubernetes.io/x: unconfined}}" + rest,
			[]string{"metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value"}},
	})
	const annotated = "metadata: {name: web, namespace: default, annotations: {"
	checkRight(t, map[string]string{
		"nothing special":  "metadata: {name: web.v1, namespace: default}" + rest,
		"annotations":      annotated + "a/B: c, seccomp.security.alpha.kubernetes.io/pod: localhost/a}}" + rest,
		"AppArmor":         annotated + "container.apparmor.security.beta.kubernetes.io/main: localhost/a}}" + rest,
		"no AppArmor":      annotated + "container.apparmor.security.beta.kubernetes.io/main: ''}}" + rest,
		"labels and more ": "metadata: {name: web, namespace: default, labels: {app.kubernetes.io/name: web, empty: ''}}" + rest,
	})
}

func TestValidateAnnotationsThatDisagreeWithFields(t *testing.T) {
	const begin = "metadata: {name: web, namespace: default, annotations: {"
	checkWrong(t, []wrong{
		{"AppArmor", begin + "container.apparmor.security.beta.kubernetes.io/main: unconfined}}\n" +
			"spec: {containers: [{name: main, image: busybox, securityContext: {appArmorProfile: {type: RuntimeDefault}}}]}",
			[]string{"spec.containers[0].securityContext.appArmorProfile: Forbidden"}},
	})
	checkRight(t, map[string]string{
		"agreement": begin + "container.apparmor.security.beta.kubernetes.io/main: unconfined}}\n" +
			"spec: {containers: [{name: main, image: busybox, securityContext: {appArmorProfile: {type: Unconfined}}}]}",
	})
}

func TestValidatePod(t *testing.T) {
	checkWrong(t, []wrong{
		{"no containers", aPod("containers: []"), []string{"spec.containers: Required value"}},
		{"restart policy", aPod("restartPolicy: Sometimes"), []string{"spec.restartPolicy: Unsupported value"}},
		{"deadline", aPod("activeDeadlineSeconds: 0"), []string{"spec.activeDeadlineSeconds: Invalid value"}},
		{"deadline too far", aPod("activeDeadlineSeconds: 2147483648"),
			[]string{"spec.activeDeadlineSeconds: Invalid value"}},
		{"node", aPod("nodeName: A"), []string{"spec.nodeName: Invalid value"}},
		{"runtime class", aPod("runtimeClassName: A"), []string{"spec.runtimeClassName: Invalid value"}},
		{"priority class", aPod("priorityClassName: A"), []string{"spec.priorityClassName: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"names": aPod("nodeName: n.example\nruntimeClassName: a.b\nos: {name: linux}\nactiveDeadlineSeconds: 1"),
		"claims": aPod("resourceClaims: [{name: a, resourceClaimName: b}, {name: c, resourceClaimTemplateName: d}]\n" +
			"containers: [{name: main, image: busybox, resources: {claims: [{name: a, request: x}, {name: a, request: y}, {name: c}]}}]"),
		"windows": aPod("os: {name: windows}\nsecurityContext: {windowsOptions: {}}"),
	})
}
