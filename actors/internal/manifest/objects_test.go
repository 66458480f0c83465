package manifest

import (
	"fmt"
	"strings"
	"testing"
)

const hidden = "hunter2"

func TestLoadObjectsNamesWhatIsWrong(t *testing.T) {
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for _, c := range []struct{ name, data, want string }{
		{"not base64", head + "data: {key: hunter2!}\n", "data"},
		{"not YAML", head + "data: {key: hunter2\n", "neither YAML nor JSON"},
		{"a line that is no pair", head + "stringData:\n  hunter2\n  other: x\n", "neither YAML nor JSON"},
		{"text where a map should be", head + "stringData: hunter2\n", "stringData"},
		{"a list where a map should be", head + "stringData: [hunter2]\n", "stringData"},
		{"a number", head + "stringData: {key: [hunter2]}\n", "stringData"},
		{"an unknown field", head + "values: {key: hunter2}\n", "values"},
		{"a wrong key", head + "stringData: {\"a b\": hunter2}\n", `"a b"`},
		{"a wrong name", strings.Replace(head, "name: s", "name: S S", 1) + "stringData: {k: hunter2}\n", "metadata.name"},
		{"another kind", strings.Replace(head, "Secret", "Pod", 1) + "stringData: {k: hunter2}\n", "kind"},
		{"too much", head + "stringData: {k: \"" + strings.Repeat("x", maxObjectBytes+1) + "\"}\n", "bytes"},
	} {
		_, problems := LoadObjects("/o.yaml", []byte(c.data))
		text := fmt.Sprint(problems)
		if len(problems) == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s: got %s, want %q", c.name, text, c.want)
		}
		if strings.Contains(text, hidden) {
			t.Errorf("%s: it tells what the file holds: %s", c.name, text)
		}
	}
}

func TestRuntimeClassesOfAManifest(t *testing.T) {
	const head, secret = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: second}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	objects, problems := LoadObjects("/o.yaml", []byte(head+"handler: runc-2\n---\n"+secret))
	if len(problems) > 0 || len(objects.RuntimeClasses) != 1 || objects.RuntimeClasses[0].Name != "second" ||
		objects.RuntimeClasses[0].Handler != "runc-2" ||
		objects.RuntimeClasses[0].Namespace != "" || len(objects.Secrets) != 1 {
		t.Errorf("got %+v, %v", objects, problems)
	}
	for _, c := range []struct{ name, data, want string }{
		{"no handler", head, "/o.yaml:1: handler: RuntimeClass second: "},
		{"a handler that is no name", head + "handler: A/b\n", "/o.yaml:4: handler"},
		{"a namespace", strings.Replace(head, "name: second", "name: second, namespace: x", 1) + "handler: a\n",
			"metadata.namespace"},
		{"a wrong name", strings.Replace(head, "second", "S S", 1) + "handler: a\n", "metadata.name"},
		{"the version of a ConfigMap", strings.Replace(head, "node.k8s.io/", "", 1) + "handler: a\n", "apiVersion"},
		{"a Secret of its version", strings.Replace(head, "RuntimeClass", "Secret", 1), "apiVersion"},
		{"overhead", head + "handler: a\noverhead: {podFixed: {cpu: 1}}\n", "spec.overhead of each pod"},
		{"scheduling", head + "handler: a\nscheduling: {nodeSelector: {a: b}}\n", "spec.nodeSelector"},
		{"an unknown field", head + "handler: a\nspec: {}\n", "spec"},
	} {
		_, problems := LoadObjects("/o.yaml", []byte(c.data))
		if text := fmt.Sprint(problems); len(problems) == 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s: got %s, want %q", c.name, text, c.want)
		}
	}
}

func FuzzLoadObjects(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n---\nkind: ConfigMap"))
	f.Add([]byte("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: s}\nhandler: h"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, problems := LoadObjects("/o.yaml", data)
		for _, o := range objects.Secrets {
			if len(problems) == 0 && (o.Name == "" || o.Namespace == "" || o.StringData != nil) {
				t.Errorf("a Secret that is not whole")
			}
		}
		for _, o := range objects.RuntimeClasses {
			if len(problems) == 0 && (o.Name == "" || o.Namespace != "" || o.Handler == "" || o.Overhead != nil ||
				o.Scheduling != nil) {
				t.Errorf("a RuntimeClass that is not whole, or is passed over in part")
			}
		}
	})
}
