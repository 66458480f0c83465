package names

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pod is found by any form in which its name is printed, or by the name in its manifest, and never guessed.
func TestFindPod(t *testing.T) {
	var pods []api.Pod
	for _, name := range []string{"a/web-node", "a/web", "b/db-node", "c/db-node", "c/one-node"} {
		p := fake.Pod("a", v1.PodRunning)
		p.Pod.Namespace, p.Pod.Name, _ = strings.Cut(name, "/")
		p.Pod.Spec.NodeName = "Node"
		pods = append(pods, *p)
	}
	for _, c := range []struct{ namespace, name, want, failed string }{
		{"", "one", "c/one-node", ""},
		{"", "one-node", "c/one-node", ""},
		{"", "web", "a/web", ""}, // the name itself comes first
		{"", "pod/web", "a/web", ""},
		{"", "pods/b/db", "b/db-node", ""},
		{"", "b/db-node", "b/db-node", ""},
		{"b", "b/db", "b/db-node", ""},
		{"", "db", "", "several pods have this name: b/db-node, c/db-node; -n names the namespace"},
		{"", "none", "", `there is no pod "none" in any namespace; did you mean c/one? (playlet pods lists them)`},
		{"", "quite-another", "", `there is no pod "quite-another" in any namespace (playlet pods lists them)`},
		{"", "wed-node", "", `there is no pod "wed-node" in any namespace; did you mean a/web-node? (playlet pods lists them)`},
		{"c", "web", "", `there is no pod "web" in namespace "c"; did you mean a/web? (playlet pods lists them)`},
		{"", "node", "", `there is no pod "node" in any namespace; of the node itself, see playlet explain node (playlet pods lists them)`},
		{"", "node/vm", "", `there is no pod "vm" in namespace "node"; of the node itself, see playlet explain node (playlet pods lists them)`},
		{"", "deploy/x-y", "", `there is no pod "x-y" in namespace "deploy"; a node has pods alone: name one of those of deploy/x-y (playlet pods lists them)`},
		{"b", "a/web", "", `"a/web" is in namespace "a", and -n names "b"`},
		{"", "pod/", "", `"pod/" names no pod; write NAME, pod/NAME or NAMESPACE/NAME`},
		{"", "a/b/c", "", `"a/b/c" names no pod`},
	} {
		got, notes, err := One(c.namespace, c.name, pods)
		if len(notes) > 0 {
			t.Error(notes)
		}
		if c.failed != "" {
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err != nil || Full(got) != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// Of an old and a new pod of one name the one that runs is meant, and the other is named.
func TestResolve_PrefersTheRunningPod(t *testing.T) {
	pod := func(uid string, ending, running bool) api.Pod {
		p := fake.Pod("a", v1.PodPending)
		if running {
			p = fake.Pod("a", v1.PodRunning, fake.Runs(true))
		}
		p.Pod.UID = types.UID(uid)
		if ending {
			p.Ending = "removed"
		}
		return *p
	}
	for _, c := range []struct {
		old, next  api.Pod
		want, note string
	}{
		{pod("old", true, true), pod("new", false, false), "old",
			"pod default/web is the one with UID old, which runs and is being ended; another of this name (UID new) has not begun"},
		{pod("old", true, false), pod("new", false, false), "new",
			"pod default/web is the one with UID new, which has not begun; another of this name (UID old) is being ended"},
		{pod("old", true, false), pod("new", false, true), "new",
			"pod default/web is the one with UID new, which runs; another of this name (UID old) is being ended"},
	} {
		got, notes, err := Pod{Name: "web"}.One([]api.Pod{c.old, c.next})
		if err != nil || string(got.Pod.UID) != c.want || len(notes) != 1 || notes[0] != c.note {
			t.Errorf("%v %q %v, want %s %q", got.Pod.UID, notes, err, c.want, c.note)
		}
	}
}
