package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func onNode1() Options {
	opts := fileOptions()
	opts.NodeName = "node-1"
	return opts
}

func load(data string) (pods []string, problems []string) {
	loaded, wrong := Load("/m/web.yaml", []byte(data), onNode1())
	for _, pod := range loaded {
		pods = append(pods, pod.Namespace+"/"+pod.Name)
	}
	for _, problem := range wrong {
		problems = append(problems, problem.Error()+" ["+problem.Pod+"]")
	}
	return pods, problems
}

func TestLoadMakesPodsThatCanRun(t *testing.T) {
	pods, problems := Load("/m/web.yaml", []byte(smallPod), onNode1())
	if len(pods) != 1 || len(problems) > 0 {
		t.Fatalf("got %v and %v", pods, problems)
	}
	pod := pods[0]
	if pod.Name != "web-node-1" || pod.UID == "" || pod.Spec.RestartPolicy != "Always" || pod.Status.Phase != "Pending" {
		t.Errorf("neither static nor defaulted: %+v", pod)
	}
}

func TestABadDocumentHidesNoGoodOne(t *testing.T) {
	good := func(name string) string { return strings.ReplaceAll(smallPod, "web", name) }
	bad := "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: x}\nspec:\n  containers:\n  - name: main\n" +
		"    image: busybox\n    ports:\n    - containerPort: 70000\n"
	for name, test := range map[string]struct {
		data string
		want []string
	}{
		"wrong value": {bad,
			[]string{"/m/web.yaml:15: spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535 [x/bad-node-1]"}},
		"wrong syntax": {"a: [\n", []string{"/m/web.yaml:7: is not YAML: did not find expected node content []"}},
		"wrong kind": {"apiVersion: v1\nkind: Node\n", []string{
			`/m/web.yaml:8: kind: Node is not something a node runs; it takes Pod, PodList, List []`}},
	} {
		t.Run(name, func(t *testing.T) {
			pods, problems := load(good("first") + "---\n" + test.data + "---\n" + good("last"))
			if want := []string{"default/first-node-1", "default/last-node-1"}; !slices.Equal(pods, want) {
				t.Errorf("pods %v, want %v", pods, want)
			}
			if !slices.Equal(problems, test.want) {
				t.Errorf("problems %q, want %q", problems, test.want)
			}
		})
	}
}

func TestLoadReports(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: main, image: busybox}]\n"
	for _, test := range []struct {
		name, data string
		want       []string
	}{
		{"no name", strings.Replace(head, "name: web", "", 1), []string{"/m/web.yaml:3: metadata.name: Required value []"}},
		{"the author's name, not the node's", strings.Replace(head, "web", "a/b", 1), []string{
			`/m/web.yaml:3: metadata.name: Invalid value: "a/b": a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', ` +
				`regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') [default/a/b-node-1]`}},
		{"a name that the node makes too long", strings.Replace(head, "web", strings.Repeat("a", 250), 1), []string{
			`/m/web.yaml:3: metadata.name: Invalid value: "` + strings.Repeat("a", 250) + `-node-1": must be no more than 253 ` +
				`characters [default/` + strings.Repeat("a", 250) + `-node-1]`}},
		{"in the order of lines", head + "  restartPolicy: No\n  dnsPolicy: No\n  hostname: N/o\n  priorityClassName: N/o\n",
			nil},
		{"what cannot be in a static pod, once", head + "  volumes: [{name: a, secret: {secretName: b}}]\n", []string{
			"/m/web.yaml:6: spec.volumes[0].secret: Forbidden: a static pod cannot refer to secrets: there is no API server " +
				"to ask, and no folder of them (--object-dir) [default/web-node-1]"}},
		{"what is not honoured yet", head +
			"  volumes: [{name: a, fc: {lun: 0}}]\n  securityContext: {seLinuxChangePolicy: Other}\n", []string{
			"/m/web.yaml:6: spec.volumes[0].fc: Forbidden: not supported yet by Playlet [default/web-node-1]",
			"/m/web.yaml:7: spec.securityContext.seLinuxChangePolicy: Forbidden: not supported yet by Playlet, except Recursive, MountOption [default/web-node-1]"}},
		{"a user namespace of its own", head + "  hostUsers: false\n  hostPID: true\n", []string{
			"/m/web.yaml:7: spec.hostPID: Forbidden: hostUsers is false [default/web-node-1]"}},
		{"a mirror", strings.Replace(head, "web", "web, annotations: {kubernetes.io/config.mirror: x}", 1), []string{
			"/m/web.yaml:3: metadata.annotations[kubernetes.io/config.mirror]: Forbidden: only the agent may set it [default/web-node-1]"}},
		{"an item of a list", `{"apiVersion":"v1","kind":"List","items":[` + "\n" +
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"main",` + "\n" + `"image":""}]}}]}`,
			[]string{"/m/web.yaml:3: items[0].spec.containers[0].image: Required value [default/web-node-1]"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods, problems := load(test.data)
			if len(pods) > 0 || (test.want != nil && !slices.Equal(problems, test.want)) {
				t.Errorf("got\n  %s\nwant\n  %s\nand pods %v", strings.Join(problems, "\n  "), strings.Join(test.want, "\n  "),
					pods)
			}
			if !slices.IsSorted(problems) {
				t.Errorf("not in the order of lines: %q", problems)
			}
		})
	}
}

// An unsupported field is refused for that alone, and not for its value.
func TestWhatIsRefusedIsNotValidated(t *testing.T) {
	_, problems := load(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: main, image: busybox, lifecycle: {preStop: {tcpSocket: {port: 80}}}, resources: {limits: {disk: -1}}}]
  ephemeralContainers: [{name: main}]
  volumes:
  - {name: a, quobyte: {}}
  - {name: b, flocker: {datasetName: a/b}}
  - {name: c, projected: {sources: [{podCertificate: {}}]}}
  - {name: d, persistentVolumeClaim: {}}
`)
	const notYet = ": Forbidden: not supported yet by Playlet [default/web-node-1]"
	want := []string{
		"/m/web.yaml:5: spec.containers[0].lifecycle.preStop.tcpSocket" + notYet,
		"/m/web.yaml:5: spec.containers[0].resources.limits[disk]" + notYet,
		"/m/web.yaml:5: spec.containers[0].resources.requests[disk]" + notYet,
		"/m/web.yaml:6: spec.ephemeralContainers: Forbidden: can only be added through the API server [default/web-node-1]",
		"/m/web.yaml:8: spec.volumes[0].quobyte" + notYet,
		"/m/web.yaml:9: spec.volumes[1].flocker" + notYet,
		"/m/web.yaml:10: spec.volumes[2].projected.sources[0].podCertificate: Forbidden: " +
			"a static pod cannot refer to certificates: there is no API server to ask [default/web-node-1]",
		"/m/web.yaml:11: spec.volumes[3].persistentVolumeClaim: Forbidden: " +
			"a static pod cannot refer to claims: there is no API server to ask [default/web-node-1]",
	}
	slices.Sort(problems)
	slices.Sort(want)
	if !slices.Equal(problems, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(problems, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestLoadRefusesAPodThatIsThereTwice(t *testing.T) {
	second := strings.Replace(smallPod, "busybox", "other", 1)
	pods, problems := load(smallPod + "---" + second)
	if !slices.Equal(pods, []string{"default/web-node-1"}) ||
		!slices.Equal(problems, []string{`/m/web.yaml:9: metadata.name: Duplicate value: "web" [default/web-node-1]`}) {
		t.Errorf("got %v and %q", pods, problems)
	}
	pods, problems = load(smallPod + "---" + strings.Replace(second, "name: web", "name: web, namespace: other", 1))
	if len(pods) != 2 || len(problems) > 0 {
		t.Errorf("two namespaces: got %v and %q", pods, problems)
	}
}

// A manifest with a field that a kubelet ignores is loaded from a file or a URL, and refused as a submission.
func TestLoad_PassesOverFields(t *testing.T) {
	paths, err := filepath.Glob("testdata/passedover/*")
	if err != nil || len(paths) == 0 {
		t.Fatal("no manifests: ", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for source, runs := range map[string]bool{FileSource: true, HTTPSource: true, SubmitSource: false} {
			opts := onNode1()
			opts.Source = source
			pods, problems := Load(path, data, opts)
			if len(pods) > 0 != runs || len(problems) != 1 || problems[0].Warning != runs || problems[0].Line == 0 || problems[0].Pod == "" {
				t.Errorf("%s from %s: got %d pods and %+v, want one warning or fault with line and pod", path, source, len(pods), problems)
			}
		}
	}
}

// The UID of a pod must not depend on a field that is passed over: a kubelet's pod goes on in its container.
func TestLoad_UIDWithPassedOverField(t *testing.T) {
	misspelt := strings.Replace(smallPod, "spec:", "sepc: {}\nspec:", 1)
	pods, _ := Load("/m/web.yaml", []byte(smallPod), onNode1())
	others, problems := Load("/m/web.yaml", []byte(misspelt), onNode1())
	if len(others) != 1 || pods[0].UID != others[0].UID || len(problems) != 1 {
		t.Errorf("got %v and %v, want the pod %s", others, problems, pods[0].UID)
	}
}

// A static pod with readiness gates runs and is never ready, as under a kubelet.
func TestLoad_ReadinessGates(t *testing.T) {
	data := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  readinessGates: [{conditionType: a/b}]\n" +
		"  containers: [{name: main, image: busybox}]\n")
	opts := onNode1()
	pods, problems := Load("f", data, opts)
	want := Problem{Path: "f", Line: 5, Pod: "default/web-node-1", Field: "spec.readinessGates", Warning: true,
		Message: "a static pod with readiness gates never becomes ready: nothing sets its conditions"}
	if len(pods) != 1 || !slices.Equal(problems, []Problem{want}) {
		t.Errorf("got %v and %+v, want a pod and %+v", pods, problems, want)
	}
	opts.Source = SubmitSource
	if pods, problems := Load("f", data, opts); len(pods) > 0 || len(problems) != 1 || problems[0].Warning {
		t.Errorf("submitted: got %v and %+v, want a refusal", pods, problems)
	}
}

func TestLoadTellsNoMoreThanAPersonReads(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
	for name, test := range map[string]struct {
		data string
		want int
	}{
		"keys":    {head + strings.Repeat("spec: {}\n", 5000), maxProblems + 1},
		"unknown": {head + "spec: {x: 1, y: 2}\n", 3},
		"types":   {head + "spec: {containers: [" + strings.Repeat("x,", 5000) + "]}\n", maxProblems},
		"values":  {head + "spec: {containers: [" + strings.Repeat("{name: 'A', image: a},", 5000) + "]}\n", maxProblems + 1},
	} {
		t.Run(name, func(t *testing.T) {
			pods, problems := load(test.data)
			if len(pods) > 0 || len(problems) != test.want {
				t.Errorf("%d pods and %d problems, want %d", len(pods), len(problems), test.want)
			}
		})
	}
}

// A file with very many documents is refused as a whole, before any is parsed. Of many problems the first are listed, and the
// others counted in one that names no pod.
func TestLoad_ManyDocuments(t *testing.T) {
	for name, text := range map[string]string{"empty": "---\n#\n", "broken": "---\na: 1\n", "JSON": `{"a":1}`} {
		many := []byte(strings.Repeat(text, maxDocuments+2))
		_, problems := Load("f", many, Options{})
		_, ofObjects := LoadObjects("f", many)
		_, ofSubmission := LoadSubmission("f", many, Options{})
		if _, err := Batches("f", many, 100); err == nil || !strings.Contains(err.Error(), "more than 20000 documents") {
			t.Errorf("%s: batches: %v", name, err)
		}
		for _, got := range [][]Problem{problems, ofObjects, ofSubmission} {
			if len(got) != 1 || !strings.Contains(got[0].Message, "more than 20000 documents") {
				t.Errorf("%s: %d problems, of which the first is %+v", name, len(got), got[0])
			}
		}
	}
	const unnamed, named = "---\na: 1\n", "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {containers: [{name: c, image: i, x: 1}]}\n"
	text := strings.Repeat(unnamed, 1000)
	for i := range 1000 {
		text += fmt.Sprintf(named, i)
	}
	pods, problems := Load("f", []byte(text), Options{NodeName: "n", Source: FileSource})
	var broken, warnings int
	var counted []string
	for _, p := range problems {
		if strings.HasPrefix(p.Message, "further problems") {
			counted = append(counted, fmt.Sprint(p.Pod, p.Warning, p.Message))
		} else if p.Warning {
			warnings++
		} else {
			broken++
		}
	}
	if len(pods) != 1000 || broken != maxFileProblems || warnings != maxFileProblems || len(counted) != 2 {
		t.Errorf("got %d pods, %d problems, %d warnings, and %q", len(pods), broken, warnings, counted)
	}
}
