//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

var podName = regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9.-]+$`)

// Every line of a node's day is JSON, with each key once; the line of an actor names the actor, and one that concerns a
// pod names the pod, by namespace and name and by UID.
func TestEachLineNamesActorAndPod(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) {
		quick(a)
		a.Config["logging"] = map[string]any{"format": "json", "verbosity": 4}
	})
	must(t, a.Write("web.yaml", manifest(s, "web", sleeper)))
	must(t, a.Write("ends.yaml", manifest(s, "ends", `restartPolicy: Always
containers: [{name: c, image: HELLO, command: [/hello, exit, "3"]}]`)))
	must(t, a.Write("unfit.yaml", manifest(s, "unfit", `containers: [{name: c, image: HELLO, livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1}}]`)))
	must(t, a.Write("stuck.yaml", policyPod(s, "stuck", s.Registry.Ref("missing"), "")))
	must(t, a.Write("nofolder.yaml", manifest(s, "nofolder", `containers: [{name: c, image: HELLO, volumeMounts: [{name: v, mountPath: /v}]}]
volumes: [{name: v, hostPath: {path: /none/of/it, type: Directory}}]`)))
	must(t, a.Write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: {}}\n"))
	awaitPod(t, a, "web", ready)
	// Each line reports a pod by the identifiers of a different kind of actor.
	expected := map[string]string{ // by its text: the pod
		"volumes operation failed": "default/" + onNode("nofolder"),
		"probe failed":             "default/" + onNode("unfit"),
		"could not pull an image":  "default/" + onNode("stuck"),
		"container ended":          "default/",
		"new pod":                  "default/",
		"stopping container":       "default/",
		"volumes phase transition": "default/",
	}
	await(t, func() error {
		for said := range expected {
			if !strings.Contains(a.Log(), `"msg":"`+said+`"`) {
				return os.ErrNotExist
			}
		}
		return nil
	})
	must(t, a.Remove("web.yaml"))
	forgotten(t, a, "web")
	if code, err := a.Term(); code != 0 || err != nil {
		t.Fatalf("%d %v", code, err)
	}
	lines := 0
	for line := range strings.Lines(a.Log()) {
		lines++
		checkLine(t, line, expected)
	}
	if lines < 50 {
		t.Errorf("%d lines were written", lines)
	}
}

func checkLine(t *testing.T, line string, expected map[string]string) {
	t.Helper()
	var said struct {
		Msg, Caller, Actor, Pod, PodUID string
		TS                              float64
	}
	if err := json.Unmarshal([]byte(line), &said); err != nil || said.Msg == "" || said.TS == 0 || said.Caller == "" {
		t.Errorf("%v: %s", err, line)
		return
	}
	seen := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader([]byte(line)))
	_, _ = d.Token() // it was decoded a moment ago
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		if seen[key.(string)] {
			t.Errorf("%v is there twice: %s", key, line)
		}
		seen[key.(string)] = true
	}
	// The command's own messages, before and after the tree, have no actor.
	if said.Actor == "" && !strings.HasPrefix(said.Caller, "agent/") {
		t.Errorf("no actor: %s", line)
	}
	ofPod := strings.HasPrefix(said.Actor, "pods/") || seen["pod"] || seen["podUID"]
	if ofPod && (!podName.MatchString(said.Pod) || said.PodUID == "") {
		t.Errorf("which pod? %s", line)
	}
	if want, known := expected[said.Msg]; known && !strings.HasPrefix(said.Pod, want) {
		t.Errorf("want the pod %s: %s", want, line)
	}
}
