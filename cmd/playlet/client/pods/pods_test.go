package pods

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPodsPrintsATable(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	db := fake.Pod("a", v1.PodPending, fake.Waits("ImagePullBackOff"))
	db.Pod.Name, db.Pod.Status.PodIP, db.Pod.Status.StartTime = "database-node1", "", nil
	db.Cause = "no such image \x1b[31m"
	quarantined := fake.Pod("a", v1.PodRunning, fake.Runs(true))
	quarantined.Pod.Namespace, quarantined.Pod.Name, quarantined.Pod.Status.StartTime = "kube-system", "x", nil
	quarantined.Quarantine, quarantined.Cause = &api.Quarantine{Until: fake.Noon}, "nil map"
	f.Has(db, quarantined)
	f.Pods.Runtime = api.Runtime{Endpoint: "unix:///c.sock", Reason: &api.Reason{Code: "RuntimeUnavailable", Message: "gone"}}
	f.Pods.Unheard = []messages.Address{messages.File}
	f.Pods.Problems = []messages.ManifestProblem{{Path: "/m/a.yaml", Line: 2, Field: "spec.x", Message: "unknown field",
		KeptLast: true}}
	out, notes, code := f.Command(t, "pods")
	want := `NAMESPACE     NAME             READY   STATUS             RESTARTS   AGE         IP
default       database-node1   0/1     ImagePullBackOff   0          <unknown>   <none>
kube-system   x                1/1     Running            0          <unknown>   10.0.0.7
`
	if out != want || code != 0 {
		t.Errorf("%d\n%s\nwant\n%s", code, out, want)
	}
	want = `default/database-node1: no such image  [31m
kube-system/x: nil map
the container runtime at unix:///c.sock is not ready: RuntimeUnavailable: gone; pods are shown as they were last seen
sources/file has not reported yet; its pods are not shown
manifest problem: /m/a.yaml:2: spec.x: unknown field (the last good version keeps running)
`
	if notes != want {
		t.Errorf("%s\nwant\n%s", notes, want)
	}
	out, notes, _ = f.Command(t, "pods", "-o", "wide")
	if lines := strings.Split(out, "\n"); !strings.HasSuffix(lines[0], "UID   WAITING FOR") ||
		!strings.HasSuffix(lines[1], "a     no such image  [31m") {
		t.Errorf("%s", out)
	}
	if strings.Contains(notes, "no such image") {
		t.Errorf("said twice: %s", notes)
	}
}

func TestPodsPrintsObjects(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	f.Has(fake.Pod("a", v1.PodRunning, fake.Runs(true)))
	for _, output := range []string{"yaml", "json"} {
		out, notes, code := f.Command(t, "pods", "-o", output)
		var list struct {
			Kind, APIVersion string
			Items            []v1.Pod
		}
		if err := yaml.Unmarshal([]byte(out), &list); err != nil || code != 0 || notes != "" {
			t.Fatalf("%v %d %s", err, code, notes)
		}
		if list.Kind != "List" || list.APIVersion != "v1" || len(list.Items) != 1 || list.Items[0].Status.PodIP != "10.0.0.7" {
			t.Errorf("%s:\n%s", output, out)
		}
		out, _, _ = f.Command(t, "pods", "web", "-n", "default", "-o", output)
		var one v1.Pod
		if err := yaml.UnmarshalStrict([]byte(out), &one); err != nil || one.Kind != "Pod" || one.Name != "web" {
			t.Errorf("%s: %v\n%s", output, err, out)
		}
	}
}

func TestPodsThatAreNotThere(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	f.Pods.Problems = []messages.ManifestProblem{{Path: "p", Pod: "default/web", Message: "bad"},
		{Path: "q", Pod: "default/db", Message: "other"}}
	for args, want := range map[string]string{
		"web":                    "manifest problem: p: bad\nplaylet: there is no pod \"web\" in any namespace (playlet pods lists them)\n",
		"web -n default":         "manifest problem: p: bad\nplaylet: there is no pod \"web\" in namespace \"default\" (playlet pods lists them)\n",
		"web -n default -o yaml": "manifest problem: p: bad\nplaylet: there is no pod \"web\" in namespace \"default\" (playlet pods lists them)\n",
		"web -n x":               "playlet: there is no pod \"web\" in namespace \"x\" (playlet pods lists them)\n",
		"-o xml":                 "playlet: --output=\"xml\" is unknown; it may be table, wide, yaml, json, name, jsonpath=, go-template=, custom-columns=\n",
		"a b":                    "playlet: there is no pod \"a\" in any namespace; there is no pod \"b\" in any namespace (playlet pods lists them)\n",
		"a -l x=y":               "playlet: pods are chosen by name or by label (-l), not by both\n",
		"-l ==":                  "playlet: --selector===: write it as app=web,tier!=test\n",
		"-o custom-columns=A":    "playlet: --output=custom-columns: \"A\" is not HEADING:PATH, as NAME:.metadata.name\n",
	} {
		out, notes, code := f.Command(t, append([]string{"pods"}, strings.Fields(args)...)...)
		if out != "" || notes != want || code != 1 {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, notes, want)
		}
	}
	f.Pods.Problems = nil
	if out, notes, code := f.Command(t, "pods"); out != "" || notes != "no pods\n" || code != 0 {
		t.Errorf("an empty node: %d %q %q", code, out, notes)
	}
	if out, _, _ := f.Command(t, "pods", "-o", "json"); !strings.Contains(out, `"items": []`) {
		t.Errorf("an empty list: %s", out)
	}
}

func TestPodsWithoutAnAgent(t *testing.T) {
	const advice = "): start it with \"playlet\", or name its socket with --admin-socket or PLAYLET_SOCKET"
	dir := t.TempDir()
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "left"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := errors.Join(left.Close(), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 150)
	for name, want := range map[string]string{
		"none":   "playlet is not running (no socket at PATH" + advice,
		"file/s": "playlet is not running (no socket at PATH" + advice,
		"file":   "playlet is not running (PATH is no socket" + advice,
		"left":   "playlet is not running (nobody listens on PATH any more" + advice,
		long:     "playlet is not running (PATH is too long for a unix socket, whose path may have 107 bytes" + advice,
	} {
		path := filepath.Join(dir, name)
		for _, args := range [][]string{{"pods"}, {"pods", "-w"}} {
			out, notes, code := fake.Run(append(args, "--admin-socket="+path), newPodsCommand)
			if out != "" || strings.ReplaceAll(notes, path, "PATH") != "playlet: "+want+"\n" || code != 1 {
				t.Errorf("%v at %s: %d %q %q", args, name, code, out, notes)
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	other := fake.Pod("a", v1.PodRunning)
	other.Pod.Name, other.Pod.Namespace = "api", "kube-system"
	f.Has(fake.Pod("a", v1.PodRunning), other, fake.Pod("a", v1.PodRunning))
	complete := func(args ...string) string {
		t.Helper()
		args = append([]string{"__complete", "pods", "--admin-socket=" + f.Socket}, args...)
		out, notes, code := fake.Run(args, newPodsCommand)
		if code != 0 {
			t.Fatal(notes)
		}
		return strings.Join(strings.Fields(out), " ")
	}
	for want, args := range map[string][]string{
		"api web :4":             {""},
		"api :4":                 {"web", ""},
		"default kube-system :4": {"-n", ""},
		"table wide yaml json name jsonpath= go-template= custom-columns= :4": {"-o", ""},
	} {
		if got := complete(args...); got != want {
			t.Errorf("%v completes to %q, want %q", args, got, want)
		}
	}
	f.Socket += "-none"
	if got := complete(""); got != ":4" {
		t.Errorf("with no agent: %q", got)
	}
}
