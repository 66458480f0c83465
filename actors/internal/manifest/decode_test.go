package manifest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// names returns the names of the pods of a manifest, and its problems and warnings as lines.
func names(data string) (pods []string, problems []string) {
	for _, document := range Decode("f", []byte(data)) {
		if document.Pod != nil {
			pods = append(pods, document.Pod.Name)
		}
		for _, problem := range slices.Concat(document.Problems, document.Warnings) {
			problems = append(problems, problem.Error())
		}
	}
	return pods, problems
}

func TestDecodeFindsAllDocuments(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: a, image: b}]}\n"
	}
	object := func(name string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}}`
	}
	for _, test := range []struct {
		name, data string
		want       []string
	}{
		{"nothing", "", nil},
		{"white space", " \n\t\n", nil},
		{"comments", "# a\n---\n# b\n--- # c\n", nil},
		{"null", "null\n---\n~\n", nil},
		{"one", pod("a"), []string{"a"}},
		{"one behind a mark", "---\n" + pod("a"), []string{"a"}},
		{"several", pod("a") + "---\n" + pod("b") + "--- # c\n" + pod("c"), []string{"a", "b", "c"}},
		{"on the line of the mark", pod("a") + "--- " + object("b") + "\n", []string{"a", "b"}},
		{"behind the end of another", pod("a") + "...\n" + pod("b"), []string{"a", "b"}},
		{"behind directives", "%YAML 1.1\n# c\n---\n" + pod("a") + "...\n%YAML 1.1\n---\n" + pod("b"), []string{"a", "b"}},
		{"lines of Windows", strings.ReplaceAll(pod("a")+"---\n"+pod("b"), "\n", "\r\n"), []string{"a", "b"}},
		{"a byte order mark", "\xef\xbb\xbf" + pod("a"), []string{"a"}},
		{"a mark that is none", pod("a") + "  # ---\n", []string{"a"}},
		{"JSON", object("a"), []string{"a"}},
		{"JSON with tabs", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"a\"}\n}",
			[]string{"a"}},
		{"JSON one after another", object("a") + "\n" + object("b") + object("c"), []string{"a", "b", "c"}},
		{"JSON between marks", object("a") + "\n---\n" + object("b"), []string{"a", "b"}},
		{"JSON and YAML", object("a") + "\n---\n" + pod("b"), []string{"a", "b"}},
		{"YAML in braces", "{apiVersion: v1, kind: Pod, metadata: {name: a}}", []string{"a"}},
		{"a List", "apiVersion: v1\nkind: List\nitems:\n- " + object("a") + "\n- " + object("b") + "\n", []string{"a", "b"}},
		{"an empty List", "apiVersion: v1\nkind: List\nitems: []\n", nil},
		{"a PodList", `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}`, []string{"a"}},
		{"words of YAML 1.1", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: yes}\n", []string{"a"}},
		{"anchors", "apiVersion: v1\nkind: Pod\nmetadata: {name: &n a, labels: {l: *n}}\n", []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if pods, problems := names(test.data); !slices.Equal(pods, test.want) || len(problems) > 0 {
				t.Errorf("got %v and %v, want %v", pods, problems, test.want)
			}
		})
	}
}

const podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"

// problemCase is a manifest, and its problems as lines.
type problemCase struct {
	name, data string
	want       []string
}

func checkReported(t *testing.T, hasPod bool, tests []problemCase) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if pods, problems := names(test.data); !slices.Equal(problems, test.want) || len(pods) > 0 != hasPod {
				t.Errorf("got\n  %s\nwant\n  %s\nand pods %v", strings.Join(problems, "\n  "), strings.Join(test.want, "\n  "),
					pods)
			}
		})
	}
}

func TestDecodeTellsTheLineOfWrongSyntax(t *testing.T) {
	const head = podHead
	checkReported(t, false, []problemCase{
		{"syntax in the first line", "}", []string{"f:1: is not YAML: did not find expected node content"}},
		{"key", head + "spec:\n  a: 1\n b: 2\n", []string{"f:6: is not YAML: did not find expected key"}},
		{"quote", head + "spec:\n  nodeName: \"x\n", []string{"f:5: is not YAML: found unexpected end of stream"}},
		{"colon", head + "spec\n", []string{"f:4: is not YAML: could not find expected ':'"}},
		{"tab", head + "spec:\n\ta: 1\n", []string{"f:5: is indented by a tab: YAML takes spaces only"}},
		{"a tab after spaces", head + "spec:\n  a:\n  \tb: 1\n", []string{"f:6: is indented by a tab: YAML takes spaces only"}},
		{"a template", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n",
			[]string{"f:4: has a template that was not rendered: {{ (helm template renders a chart)"}},
		{"a template's condition", "{{- if .Values.on }}\napiVersion: v1\nkind: Pod\n{{- end }}\n",
			[]string{"f:1: has a template that was not rendered: {{ (helm template renders a chart)"}},
		{"anchor", head + "spec:\n  nodeName: *x\n", []string{"f:1: is not YAML: unknown anchor 'x' referenced"}},
		{"recursion", head + "spec: &x\n  affinity: *x\n", []string{"f:1: is not YAML: anchor 'x' value contains itself"}},
		{"control", head + "spec:\n  nodeName: \x01\n", []string{"f:5: is not YAML: control characters are not allowed"}},
		{"bytes", head + "spec:\n  nodeName: \xff\n", []string{"f:5: is not YAML: invalid leading UTF-8 octet"}},
		{"key of a map", head + "spec:\n  {a: b}: c\n", []string{"f:5: spec: a key must be text, not a map or a list"}},
		{"in the second document", "null\n---\n\n# c\n\n\n" + head + "spec: [\n",
			[]string{"f:10: is not YAML: did not find expected node content"}},
		{"JSON", "{\"a\": 1,\n\"b\": 2\n\"c\": 3}", []string{`f:3: is not JSON: invalid character '"' after object key:value pair`}},
		{"a second document without a mark", "{apiVersion: v1,\n kind: Pod}\n{apiVersion: v1}\n",
			[]string{"f:3: another document begins here without a line of --- before it"}},
	})
}

func TestDecodeTellsTheLineOfAWrongField(t *testing.T) {
	const head = podHead
	checkReported(t, false, []problemCase{
		{"types", head +
			"spec:\n  hostNetwork: 1\n  containers:\n  - name: 5\n    ports: {}\n    tty: 'on'\n  - x\n  hostname: [a]\n" +
			"  nodeSelector: [b]\n  priority: 1e10\n  securityContext: {runAsUser: '0'}\n",
			[]string{
				`f:7: spec.containers[0].name: Invalid value: 5: must be text; put it in quotes`,
				`f:8: spec.containers[0].ports: Invalid value: {}: must be a list`,
				`f:9: spec.containers[0].tty: Invalid value: "on": must be true or false`,
				`f:10: spec.containers[1]: Invalid value: "x": must be a map of fields`,
				`f:12: spec.nodeSelector: Invalid value: ["b"]: must be a map`,
				`f:5: spec.hostNetwork: Invalid value: 1: must be true or false`,
				`f:14: spec.securityContext.runAsUser: Invalid value: "0": must be a whole number`,
				`f:11: spec.hostname: Invalid value: ["a"]: must be text; put it in quotes`,
				`f:13: spec.priority: Invalid value: 10000000000: must be between -2147483648 and 2147483647`}},
		{"quantity", head + "spec:\n  overhead:\n    cpu: much\n", []string{
			`f:6: spec.overhead[cpu]: Invalid value: "much": quantities must match the regular expression ` +
				`'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`}},
		{"time", head + "status:\n  startTime: now\n", []string{
			`f:5: status.startTime: Invalid value: "now": parsing time "now" as "2006-01-02T15:04:05Z07:00": ` +
				`cannot parse "now" as "2006"`}},
		{"kinds", "kind: Deployment\n", []string{"f:1: kind: Deployment is not something a node runs; it takes Pod, PodList, List"}},
		{"a kind in lower case", "apiVersion: v1\nkind: pod\n", []string{"f:2: kind: there is no kind pod; did you mean Pod?"}},
		{"kinds of wrong types", "apiVersion: 1\nkind: [Pod]\n", []string{"f:1: apiVersion: Invalid value: 1: must be text",
			`f:2: kind: Invalid value: ["Pod"]: must be text`}},
		{"no object", "---\n\n- a\n", []string{"f:3: must be an object with apiVersion and kind"}},
		{"items of other kinds", "apiVersion: v1\nkind: PodList\nitems:\n- kind: Node\n  apiVersion: v1\n- 1\n- null\n",
			[]string{"f:4: items[0].kind: Node is not something a node runs; it takes Pod",
				"f:6: items[1]: must be an object with apiVersion and kind",
				"f:7: items[2]: must be an object with apiVersion and kind"}},
	})
}

// A field that is unknown, repeated or of the wrong case costs no pod: it is a warning with its line and the field that was
// meant.
func TestDecode_PassesOverFields(t *testing.T) {
	const head = podHead
	checkReported(t, true, []problemCase{
		{"twice", head + "spec:\n  nodeName: a\n  nodeName: b\n", []string{"f:6: spec.nodeName: is there twice"}},
		{"twice in JSON", "{\"apiVersion\": \"v1\",\n\"kind\": \"Pod\", \"spec\": {\n\"nodeName\": \"a\",\n\"nodeName\": \"b\"}}",
			[]string{"f:4: spec.nodeName: is there twice"}},
		{"unknown", head + "spec:\n  containers:\n  - name: a\n    imag: b\n",
			[]string{"f:7: spec.containers[0].imag: is not a field of the API here; did you mean image?"}},
		{"one level too high", head + "containers: [{name: a, image: b}]\n",
			[]string{"f:4: containers: is not a field of the API here: indent it below spec"}},
		{"one level too high in a container", head + "spec:\n  containers:\n  - name: a\n    limits: {}\n",
			[]string{"f:7: spec.containers[0].limits: is not a field of the API here: indent it below spec.containers[0].resources"}},
		{"of a container in the spec", head + "spec:\n  image: b\n",
			[]string{"f:5: spec.image: is not a field of the API here: indent it below spec.containers[0]"}},
		{"of a mount in a container", head + "spec:\n  containers:\n  - name: a\n    mountPath: /b\n",
			[]string{"f:7: spec.containers[0].mountPath: is not a field of the API here: indent it below spec.containers[0].volumeMounts[0]"}},
		{"of a container in a port", head + "spec:\n  containers:\n  - name: a\n    ports:\n    - containerPort: 80\n      resources: {}\n",
			[]string{"f:9: spec.containers[0].ports[0].resources: is not a field of the API here: move it up to spec.containers[0]"}},
		{"of the spec in a container", head + "spec:\n  containers:\n  - name: a\n    hostNetwork: true\n",
			[]string{"f:7: spec.containers[0].hostNetwork: is not a field of the API here: move it up to spec"}},
		{"of the metadata in the spec", head + "spec:\n  labels: {a: b}\n",
			[]string{"f:5: spec.labels: is not a field of the API here: move it below metadata"}},
		{"of the top in the spec", head + "spec:\n  kind: Pod\n",
			[]string{"f:5: spec.kind: is not a field of the API here: move it up to the top level"}},
		{"of many lists, and of the metadata", head + "spec:\n  name: a\n",
			[]string{"f:5: spec.name: is not a field of the API here: move it below metadata"}},
		{"of many structures", head + "spec:\n  containers:\n  - name: a\n    livenessProbe: {port: 80}\n",
			[]string{"f:7: spec.containers[0].livenessProbe.port: is not a field of the API here"}},
		{"in a list's item", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(head, "\n", "\n  ") + "spec: {image: b}\n",
			[]string{"f:7: items[0].spec.image: is not a field of the API here: indent it below items[0].spec.containers[0]"}},
		{"case", head + "Spec: {}\n", []string{"f:4: Spec: is not a field of the API here; did you mean spec?"}},
		{"a list's item", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(head, "\n", "\n  ") + "spec: {a: b}\n",
			[]string{"f:7: items[0].spec.a: is not a field of the API here"}},
		{"merged from elsewhere",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - &c\n    name: a\n    image: b\n" +
				"    x: 1\n  - <<: *c\n    name: b\n",
			[]string{"f:9: spec.containers[0].x: is not a field of the API here",
				"f:10: spec.containers[1].x: is not a field of the API here"}},
		{"merged from a list", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nstatus: &x\n  message: b\n  q: 1\n" +
			"spec:\n  <<: [{nodeName: a}, {hostname: b,\n    z: c}]\n",
			[]string{"f:7: spec.z: is not a field of the API here",
				"f:6: status.q: is not a field of the API here"}},
		{"of a list", "apiVersion: v1\nkind: List\nitms: []\nitems:\n- {apiVersion: v1, kind: Pod}\n- {apiVersion: v1, kind: Pod}\n",
			[]string{"f:3: itms: is not a field of the API here; did you mean items?"}},
		{"of another version", strings.Replace(head, "name: a", "name: a, clusterName: b", 1),
			[]string{"f:3: metadata.clusterName: is not a field of the API here"}},
	})
}

func TestDecodeRefusesWhatIsTooLarge(t *testing.T) {
	pods, problems := names(string(bytes.Repeat([]byte("#"), MaxBytes+1)))
	if want := []string{"f: is too large: 10485761 bytes, 10485760 may be"}; len(pods) > 0 || !slices.Equal(problems, want) {
		t.Errorf("got %v and %v", pods, problems)
	}
	if pods, problems := names(string(bytes.Repeat([]byte("#"), MaxBytes))); len(pods)+len(problems) > 0 {
		t.Errorf("a comment as large as may be: %v and %v", pods, problems)
	}
}
