package podspec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"
)

// TestAnOrdinaryPodIsSupported uses the common fields of pods on a node without an API server.
func TestAnOrdinaryPodIsSupported(t *testing.T) {
	pod := podFrom(t, aPod(`
hostNetwork: true
priorityClassName: system-node-critical
enableServiceLinks: false
tolerations: [{operator: Exists}]
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.1], options: [{name: ndots, value: "2"}]}
initContainers:
- {name: sidecar, image: busybox, restartPolicy: Always, volumeMounts: [{name: data, mountPath: /data}]}
containers:
- name: main
  image: busybox:1
  command: [sh, -c]
  args: ["sleep 1"]
  env: [{name: A, value: b}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
  ports: [{containerPort: 80, name: http}]
  resources: {limits: {cpu: 1, memory: 64Mi}, requests: {cpu: 100m}}
  lifecycle: {preStop: {httpGet: {port: http, path: /stop}}}
  securityContext: {readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumeMounts: [{name: data, mountPath: /data}, {name: host, mountPath: /host, readOnly: true}]
volumes:
- {name: data, emptyDir: {}}
- {name: host, hostPath: {path: /srv, type: DirectoryOrCreate}}
- {name: plain}
`))
	Default(pod)
	errs := append(append(Validate(pod), ValidateStatic(pod, ObjectSources{})...), Unsupported(pod)...)
	if len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
}

func TestUnsupportedSpeaksPlainly(t *testing.T) {
	pod := podFrom(t, aContainer("lifecycle: {preStop: {tcpSocket: {port: 1}}}\nresources: {limits: {ephemeral-storage: 1Gi}}"))
	pod.Spec.OS = podFrom(t, aPod("os: {name: windows}")).Spec.OS
	Default(pod)
	want := []string{
		"spec.containers[0].lifecycle.preStop.tcpSocket: Forbidden: not supported yet by Playlet",
		"spec.os.name: Forbidden: not supported yet by Playlet, except linux",
	}
	errs := Unsupported(pod)
	if len(errs) != len(want) {
		t.Fatalf("got %v, want %v", errs, want)
	}
	for i := range errs {
		if errs[i].Error() != want[i] {
			t.Errorf("got %s, want %s", errs[i], want[i])
		}
	}
}

// Counted resources and those of device plugins are supported, also in a static pod. A static pod has none that are neither.
func TestExtendedResources(t *testing.T) {
	pod := podFrom(t, aContainer("resources: {limits: {cpu: 1, example.com/dongle: 1}}"))
	Default(pod)
	if errs := Unsupported(pod); len(errs) > 0 {
		t.Errorf("counted: %v", errs)
	}
	if errs := ValidateStatic(pod, ObjectSources{}); len(errs) > 0 {
		t.Errorf("of a static pod: %v", errs)
	}
	for _, text := range []string{"limits: {kubernetes.io/batteries: 1}",
		"limits: {deviceclass.resource.kubernetes.io/gpu: 1}", "requests: {kubernetes.io/batteries: 1}"} {
		static := podFrom(t, aContainer("resources: {"+text+"}"))
		Default(static)
		if errs := ValidateStatic(static, ObjectSources{Cluster: true}); len(errs) == 0 || errs[0].Detail != notYet {
			t.Errorf("of a static pod, %s: %v", text, errs)
		}
	}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
	if errs := Unsupported(pod); len(errs) > 0 || !HasClaims(pod) {
		t.Errorf("of claims: %v", errs)
	}
}

// TestAFieldWithoutALineIsRefused removes lines, as if the API had gained their fields.
func TestAFieldWithoutALineIsRefused(t *testing.T) {
	whole := maps.Clone(rules)
	defer func() { rules = whole }()
	for path, r := range whole {
		if r.verdict != honoured {
			continue
		}
		rules = maps.Clone(whole)
		delete(rules, path)
		checkRefusedWithout(t, path)
	}
}

func checkRefusedWithout(t *testing.T, path string) {
	t.Helper()
	pod := podFrom(t, "{}")
	set(reflect.ValueOf(&pod.Spec).Elem(), path, "x")
	errs := Unsupported(pod)
	if len(errs) != 1 || errs[0].Detail != notYet {
		t.Errorf("%s: want it refused, got %v", path, errs)
	}
}

// A Linux node ignores the options for Windows, as the kubelet does: one manifest may serve nodes of both kinds.
func TestUnsupported_WindowsOptionsAreIgnored(t *testing.T) {
	pod := podFrom(t, aContainer("securityContext: {windowsOptions: {runAsUserName: someone}}"))
	pod.Spec.SecurityContext = podFrom(t, aPod("securityContext: {windowsOptions: {hostProcess: false}}")).Spec.SecurityContext
	Default(pod)
	if errs := Unsupported(pod); len(errs) > 0 {
		t.Errorf("got %v, want no refusal", errs)
	}
}

// A message must not recommend a field that is itself refused.
func TestMessages_NameNoRefusedFieldAsTheRemedy(t *testing.T) {
	leaf := func(path string) string {
		path, _, _ = strings.Cut(path, ":")
		return strings.Trim(path[strings.LastIndexAny(path, ".")+1:], "[]")
	}
	honouredLeaves := map[string]bool{}
	for path, r := range rules {
		honouredLeaves[leaf(path)] = honouredLeaves[leaf(path)] || r.verdict != refused && r.only == nil
	}
	files, err := filepath.Glob("validate*.go")
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !strings.Contains(text.Value, " ") {
				return true
			}
			for _, path := range Refused() {
				if name := leaf(path); !honouredLeaves[name] && slices.Contains(strings.FieldsFunc(text.Value, func(r rune) bool {
					return !unicode.IsLetter(r)
				}), name) {
					t.Errorf("%s: message %s names %s, which is refused", file, text.Value, path)
				}
			}
			return true
		})
	}
}
