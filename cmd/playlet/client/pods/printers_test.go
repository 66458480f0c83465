package pods

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
)

// Pods are chosen and printed as a user of kubectl writes it.
func TestPodsAreChosenAndPrinted(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	db, web := fake.Pod("a", v1.PodRunning, fake.Runs(true)), fake.Pod("a b", v1.PodRunning, fake.Runs(true), fake.Runs(true))
	old := fake.Pod("a", v1.PodPending)
	old.Pod.Name, old.Ending = "web-node1", "removed"
	db.Pod.Name, db.Pod.Namespace, db.Pod.Labels = "db-node1", "shop", map[string]string{"app": "db"}
	web.Pod.Name, web.Pod.Labels, web.Pod.Annotations = "web-node1", map[string]string{"app": "web"}, map[string]string{"say": "a b"}
	for _, p := range []*v1.Pod{db.Pod, web.Pod, old.Pod} {
		p.Spec.NodeName = "node1"
	}
	f.Has(old, web, db)
	const note = "pod default/web-node1 is the one with UID b, which runs; another of this name (UID a) is being ended\n"
	for args, want := range map[string]string{
		"pods pod/web shop/db -o name":                           "pod/web-node1\npod/db-node1\n" + note,
		"pods -l app!=db,app -o name -A":                         "pod/web-node1\n",
		"pods -n shop -o name":                                   "pod/db-node1\n",
		"pods web -o jsonpath={.metadata.uid}":                   "b" + note,
		"pods web -o jsonpath=metadata.name":                     "web-node1" + note,
		"pods web -o jsonpath={.metadata.nope}":                  note,
		"pods -o jsonpath={.items[*].metadata.uid}":              "a b c",
		"pods db -o go-template={{.metadata.namespace}}":         "shop",
		"pods web -o custom-columns=A:.metadata.annotations.say": "A\na b\n" + note,
		"pods -l app -o custom-columns=N:metadata.name,C:.spec.containers[*].name,X:.spec.none": "N           C     X\nweb-node1   a,b   <none>\n" +
			"db-node1    a     <none>\n",
		"pods -n shop --no-headers":                                   "shop   db-node1   1/1   Running   0   5m   10.0.0.7\n",
		"pods -n shop --no-headers -o custom-columns=N:metadata.name": "db-node1\n",
	} {
		out, notes, code := f.Command(t, strings.Fields(args)...)
		out = strings.ReplaceAll(out, summary.Row(web, time.Now(), false)[5], "5m")
		if out+notes != want || code != 0 {
			t.Errorf("%s: %d\n%s%s\nwant\n%s", args, code, out, notes, want)
		}
	}
}

// An unreadable path or template is reported with an example.
func TestOutputsThatCannotBeRead(t *testing.T) {
	f := fake.Start(t, newPodsCommand)
	f.Has(fake.Pod("a", v1.PodRunning))
	for output, want := range map[string]string{
		"jsonpath={.a[":                        "unterminated array (for example: -o jsonpath='{.status.podIP}')",
		"jsonpath={.spec.containers[5].name}":  "array index out of bounds: index 5, length 1 (for example: -o jsonpath='{.status.podIP}')",
		"go-template={{.a":                     "unclosed action (for example: -o go-template='{{.status.podIP}}')",
		"go-template={{.metadata.name.first}}": "can't evaluate field first in type interface {} (for example: -o go-template='{{.status.podIP}}')",
	} {
		out, notes, code := f.Command(t, "pods", "web", "-o", output)
		if out != "" || notes != "playlet: --output="+output+": "+want+"\n" || code != 1 {
			t.Errorf("%s: %d %q %q", output, code, out, notes)
		}
	}
}

// PLAYLET_SOCKET names the agent where the command line does not.
func TestSocketOfTheEnvironment(t *testing.T) {
	t.Setenv("PLAYLET_SOCKET", "/nowhere/s")
	if _, notes, code := fake.Run([]string{"pods"}, newPodsCommand); code != 1 || !strings.Contains(notes, "no socket at /nowhere/s") {
		t.Errorf("%d %s", code, notes)
	}
}
