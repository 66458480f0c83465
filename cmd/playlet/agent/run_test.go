package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: %s}\n"

const deployed = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      terminationGracePeriodSeconds: 3
      containers:
      - name: main
        image: one
        env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}]
`

// Run accepts the input of podman kube play: a Deployment by its template, with its ConfigMap beside it, from a file, a folder
// or a URL.
func TestRunTakesConfigMapsAndTemplates(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	text := deployed + "---\n" + fmt.Sprintf(settings, "red")
	shop := r.file("shop.yaml", text)
	out, notes, code := r.playlet("run", "-f", shop, "--wait")
	if code != 0 || out != "configmap/settings created\npod/web-node created\n" || !strings.Contains(notes,
		"web: Deployment: one pod is run, of its spec.template; without effect here: replicas (3)\n") {
		t.Errorf("%d %s%s", code, out, notes)
	}
	files, err := filepath.Glob(filepath.Join(r.objects(), "submitted-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	r.does("configmap/settings unchanged\npod/web-node unchanged\n", "run", "-f", shop)

	folder := filepath.Join(r.dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r.refuses([]string{"run", "-f", folder}, "there is no manifest in "+folder)
	r.file("folder/a.yaml", fmt.Sprintf(settings, "blue"))
	r.file("folder/readme.txt", "no manifest")
	r.does("configmap/settings configured (server dry run)\n", "run", "-f", folder, "--dry-run=server")
	r.does("configmap/settings configured\n", "run", "-f", folder)

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/shop.yaml" {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	r.does("configmap/settings configured\npod/web-node unchanged\n", "run", "-f", server.URL+"/shop.yaml")
	r.refuses([]string{"run", "-f", server.URL + "/x.yaml"}, "/x.yaml answers 404 Not Found")

	other := filepath.Join(r.objects(), "mine.yaml")
	if err := os.WriteFile(other, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: hunter2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := r.file("key.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: hunter3}\n")
	r.refuses([]string{"run", "-f", key}, "Secret default/key is in "+other+" already")
	r.does("pod/web-node deleted\nconfigmap/settings deleted\n", "rm", "-f", shop, "--wait")
	if files, err = filepath.Glob(filepath.Join(r.objects(), "submitted-*")); err != nil || len(files) != 0 {
		t.Errorf("there is left %v %v", files, err)
	}
	r.refuses([]string{"rm", "-f", shop}, "no ConfigMap default/settings was submitted")
	if log := r.log.String(); strings.Contains(log, "hunter") {
		t.Error("the log has what a Secret holds")
	}
}

func TestRunWithoutAFolderOfObjects(t *testing.T) {
	r := newRig(t, sim.Options{}, "--object-dir=")
	r.start(nil)
	r.refuses([]string{"run", "-f", r.file("s.yaml", fmt.Sprintf(settings, "red"))},
		"ConfigMap default/settings: this agent has no folder for ConfigMaps and Secrets; start it with --object-dir=FOLDER")
}

// A dry run and a diff show the result, with the agent's own checks, and change nothing.
func TestRunMayOnlyLook(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	web := r.file("web.yaml", manifest("web", "Always", nil, []string{"main one"}))
	bad := r.file("bad.yaml", manifest("web", "Sometimes", nil, []string{"main one"}))
	r.does("pod/web-node created (server dry run)\n", "run", "-f", web, "--dry-run=server", "--wait")
	r.refuses([]string{"run", "-f", bad, "--dry-run=server"}, "bad.yaml:6: spec.restartPolicy: ")
	r.does("pod/web-node created\n", "run", "-f", web, "--wait")
	uid := r.runtime.Snapshot().Container("web-node", "main").PodUID
	r.does("", "run", "-f", web, "--diff")
	r.file("web.yaml", manifest("web", "Always", nil, []string{"main two"}))
	want := `--- pod default/web, as it is
+++ pod default/web, as it would be
@@ -4,7 +4,7 @@
   name: web
 spec:
   containers:
-  - image: one
+  - image: two
     name: main
     resources: {}
   restartPolicy: Always
`
	if out, notes, code := r.playlet("run", "-f", web, "--diff"); code != 1 || out != want || notes != "" {
		t.Errorf("%d\n%s%s\nwant\n%s", code, out, notes, want)
	}
	r.does("pod/web-node configured (server dry run)\n", "run", "-f", web, "--dry-run=server")
	if c := r.runtime.Snapshot().Container("web-node", "main"); c == nil || c.PodUID != uid {
		t.Errorf("there runs %+v", c)
	}
	r.refuses([]string{"run", "-f", web, "--for=completed"}, "give --wait, too")
	r.refuses([]string{"run", "-f", web, "--wait", "--for=gone"}, `--for="gone" is unknown; it may be ready, completed`)
}

// --wait is true about failures: each of these ends with 1 and the cause, and the good ones with 0.
func TestRunWaitsForTheTruth(t *testing.T) {
	r := newRig(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{
		"nine":  {sim.ExitAfter(0, 9)},
		"fine":  {sim.ExitAfter(0, 0)},
		"third": {sim.ExitAfter(0, 1), sim.RunForever()}, // its second run stays
	}}})
	r.start(nil)
	run := func(name, policy, container string, flags ...string) (string, int) {
		file := r.file(name+".yaml", manifest(name, policy, nil, []string{container + " one"}))
		_, notes, code := r.playlet(append([]string{"run", "-f", file, "--wait"}, flags...)...)
		return notes, code
	}
	for _, c := range []struct {
		name, policy, container, until string
		code                           int
		want                           string
	}{
		{"never", "Never", "nine", "ready", 1, "pod default/never-node has failed: "},
		{"never2", "Never", "nine", "completed", 1, "pod default/never2-node has failed: "},
		{"loop", "Always", "nine", "ready", 1, "pod default/loop-node does not become ready: "},
		{"retry", "OnFailure", "nine", "completed", 1, "pod default/retry-node does not become completed: "},
		{"done", "Never", "fine", "completed", 0, ""},
		{"server", "Always", "server", "completed", 1, "pod default/server-node does not complete: its restartPolicy is Always"},
		{"better", "Always", "third", "ready", 0, ""},
	} {
		notes, code := run(c.name, c.policy, c.container, "--for="+c.until)
		if code != c.code || !strings.Contains(notes, c.want) {
			t.Errorf("%s: %d\n%s\nwant %d %s", c.name, code, notes, c.code, c.want)
		}
		t.Log(notes)
	}
}

// A slow end of a pod can be shortened, at its removal and later. Without that, the command reports the progress of the end.
func TestRmHurries(t *testing.T) {
	r := newRig(t, sim.Options{Script: sim.Script{Default: sim.Sequence{sim.IgnoringTerm()}}})
	r.start(nil)
	slow := strings.Replace(manifest("slow", "Always", nil, []string{"main one"}), "PeriodSeconds: 3", "PeriodSeconds: 6000", 1)
	file := r.file("slow.yaml", slow)
	r.does("pod/slow-node created\n", "run", "-f", file, "--wait")
	r.does("pod/slow-node deleted\n", "rm", "slow")
	r.untilPrinted([]string{"pods"}, "Terminating")
	for _, name := range []string{"slow", "pod/slow-node"} {
		if out, notes, code := r.playlet("rm", name); code != 0 || !strings.HasPrefix(out, "pod/slow-node already terminating: ") ||
			!strings.Contains(out, "; killed in 99m") || !strings.HasSuffix(out, " (--force ends it at once)\n") {
			t.Errorf("%d %s%s", code, out, notes)
		}
	}
	if !isUp(r.runtime.Snapshot(), "slow-node") {
		t.Fatal("it has ended by itself")
	}
	r.does("pod/slow-node hurried\n", "rm", "slow", "--force", "--wait")

	r.does("pod/slow-node created\n", "run", "-f", file, "--wait")
	r.does("pod/slow-node deleted\n", "rm", "-f", file, "--grace-period=1", "--wait")
	if isUp(r.runtime.Snapshot(), "slow-node") {
		t.Error("it runs on")
	}
	// The new pod of the same name has its own grace period; the shortened one of its predecessor does not apply.
	r.does("pod/slow-node created\n", "run", "-f", file, "--wait")
	r.does("pod/slow-node deleted\n", "rm", "slow")
	r.untilPrinted([]string{"rm", "slow"}, "already terminating", "killed in 99m")
	r.refuses([]string{"rm", "slow", "--force", "--grace-period=1"}, "[force grace-period]")
	r.does("pod/slow-node hurried\n", "rm", "slow", "--force", "--wait")
}
