package pods

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// unreadNode returns the actor of a node of a cluster. One pod of a manifest folder runs; the API server's pods are known.
func unreadNode(t *testing.T) (*supervisortest.Kit, *board.Board) {
	t.Helper()
	return unreadNodeOf(t, t.TempDir())
}

func unreadNodeOf(t *testing.T, dir string) (*supervisortest.Kit, *board.Board) {
	t.Helper()
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{Sources: []messages.Address{messages.File, messages.APIServer},
		Cluster: true, Board: b, Dir: dir})("pods"))
	k.RunWork()
	wants(k, messages.APIServer)
	k.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: k.Now().Add(time.Millisecond), Pods: []messages.PodFacts{{
		UID: "runs", Name: "web", Namespace: "default", Sandboxes: []messages.SandboxFact{{ID: "s", Ready: true, Source: "file"}},
	}}})
	return k, b
}

// A running pod is left alone, with its resources, while a manifest of its source is unusable and no other lists it.
func TestSpared_ByUnreadManifests(t *testing.T) {
	stale := messages.SourcePodsWanted{Pods: nil, Stale: map[string]bool{"old": true}, Unread: []string{"/m/a.yaml"}}
	for name, c := range map[string]struct {
		says    messages.SourcePodsWanted
		spawned []string
		problem string
	}{
		"all are read": {messages.SourcePodsWanted{}, []string{"runs"}, ""},
		"it left its manifest": {messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}, Gone: map[string]bool{"runs": true}},
			[]string{"runs"}, ""},
		"another left its manifest": {messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}, Gone: map[string]bool{"x": true}},
			nil, "/m/a.yaml"},
		"one cannot be used": {messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}}, nil, "/m/a.yaml"},
		"one that names it cannot be used": {messages.SourcePodsWanted{Unread: []string{"/m/a.yaml", "/m/web.yaml"},
			Problems: []messages.ManifestProblem{{Path: "/m/web.yaml", Pod: "default/web", Message: "bad"}}}, nil, "/m/web.yaml"},
		"one with this name cannot be used": {messages.SourcePodsWanted{Unread: []string{"/m/a.yaml", "/m/b.yaml"},
			UnreadNames: map[string][]string{"/m/a.yaml": {"default/db"}, "/m/b.yaml": {"default/web"}}}, nil, "/m/b.yaml"},
		"only one with another name cannot": {unreadNames("default/db", "kube-system/web"), []string{"runs"}, ""},
		"its own is used":                   {withPods(messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}}, "web", "runs"), []string{"runs"}, ""},
		"another version of its is":         {withPods(messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}}, "web", "new"), []string{"runs"}, ""},
		"only an earlier version is":        {withPods(stale, "web", "old"), nil, "/m/a.yaml"},
		"an earlier version of others":      {withPods(stale, "db", "old"), []string{"old"}, "/m/a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			k, b := unreadNode(t)
			c.says.Source = messages.File
			k.Send(messages.File, c.says)
			if !slices.Equal(k.Spawned, c.spawned) {
				t.Fatalf("spawned %v, want %v", k.Spawned, c.spawned)
			}
			k.Advance(sweepEvery)
			var problem string
			for _, p := range b.Now().Problems {
				if p.Pod == "default/web" && strings.Contains(p.Message, "pod default/web runs") {
					problem = p.Path
				}
			}
			if problem != c.problem {
				t.Errorf("reported for %q, want %q", problem, c.problem)
			}
			all := k.Take()
			for _, m := range ofType[messages.KeepContainers](all) {
				if m.Heard && !m.Wanted["runs"] {
					t.Error("the containers are cleaned up")
				}
			}
			for _, m := range ofType[messages.PodFoldersWanted](all) {
				if !m.UIDs["runs"] {
					t.Error("the folder is cleaned up")
				}
			}
			for _, m := range ofType[messages.PodCgroupsWanted](all) {
				if m.Heard && !m.UIDs["runs"] {
					t.Error("the cgroup is cleaned up")
				}
			}
			told := ofType[messages.PodStatusesWanted](all)
			kept := slices.ContainsFunc(told[len(told)-1].Pods, func(p messages.PodStatusWanted) bool { return p.UID == "runs" && p.Kept })
			if kept != (c.problem != "") {
				t.Errorf("its mirror pod is kept: %v", kept)
			}
		})
	}
}

// unreadNames returns a list of one unreadable manifest with these names.
func unreadNames(names ...string) messages.SourcePodsWanted {
	return messages.SourcePodsWanted{Unread: []string{"/m/a.yaml"}, UnreadNames: map[string][]string{"/m/a.yaml": names}}
}

// A static pod runs with the name of the node appended, which may have changed since.
func TestMayBeNamed(t *testing.T) {
	f := &messages.PodFacts{Namespace: "default", Name: "web-node-1"}
	for name, want := range map[string]bool{"default/web": true, "default/web-node-1": true, "default/we": false,
		"kube-system/web": false, "default/db": false} {
		if got := mayBeNamed(f, name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// The folder of a finished pod stays while a manifest that may name it is unread, and goes if the pod left its manifest.
func TestSpared_RecordsOfGonePods(t *testing.T) {
	dir := t.TempDir()
	if err := newStore(dir).write(map[string]record{"left": recordOf("x"), "stays": recordOf("x")}); err != nil {
		t.Fatal(err)
	}
	k, _ := unreadNodeOf(t, dir)
	k.Send(messages.File, messages.SourcePodsWanted{Source: messages.File, Unread: []string{"/m/a.yaml"},
		Gone: map[string]bool{"left": true}})
	k.Advance(sweepEvery)
	folders := ofType[messages.PodFoldersWanted](k.Take())
	if len(folders) == 0 || folders[0].UIDs["left"] || !folders[0].UIDs["stays"] {
		t.Errorf("folders to keep are %v, want stays without left", folders)
	}
}

func withPods(m messages.SourcePodsWanted, name, uid string) messages.SourcePodsWanted {
	m.Pods = append(slices.Clone(m.Pods), pod(name, uid))
	return m
}

// When the manifest is corrected its pod is adopted; when it is removed the pod ends.
func TestSpared_UntilTheManifestIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		then messages.SourcePodsWanted
		ends bool
	}{
		"corrected": {withPods(messages.SourcePodsWanted{Source: messages.File}, "web", "runs"), false},
		"removed":   {messages.SourcePodsWanted{Source: messages.File}, true},
	} {
		k, b := unreadNode(t)
		k.Send(messages.File, messages.SourcePodsWanted{Source: messages.File, Unread: []string{"/m/a.yaml"}})
		k.Take()
		k.Send(messages.File, c.then)
		k.Send(messages.PodAddress("runs"), messages.GetDesired{UID: "runs"})
		if told := sent[messages.PodWanted](k); len(told) == 0 || told[0].Ending != nil != c.ends {
			t.Errorf("%s: the pod's actor was sent %+v, want an end: %v", name, told, c.ends)
		}
		k.Advance(publishEvery)
		if n := len(b.Now().Problems); n > 0 {
			t.Errorf("%s: %d problems are left", name, n)
		}
	}
}

// A spared pod ends with its grace period while the machine shuts down, and is published until then.
func TestSpared_EndsWithTheMachine(t *testing.T) {
	k, b := unreadNode(t)
	k.Send(messages.File, messages.SourcePodsWanted{Source: messages.File, Unread: []string{"/m/a.yaml"}})
	k.Advance(publishEvery)
	if s := b.Now(); s.Unclaimed != 1 || len(s.Pods) != 0 {
		t.Errorf("published %d unclaimed pods and %d others, want 1 and 0", s.Unclaimed, len(s.Pods))
	}
	k.Send(messages.Shutdown, messages.NodeShutdownObserved{Underway: true})
	if !slices.Equal(k.Spawned, []string{"runs"}) {
		t.Fatalf("spawned %v, want an actor that ends the pod", k.Spawned)
	}
	k.Send(messages.PodAddress("runs"), messages.GetDesired{UID: "runs"})
	if told := sent[messages.PodWanted](k); len(told) == 0 || told[0].Ending == nil || !told[0].Ending.Orphan {
		t.Errorf("the pod's actor was sent %+v, want the end of an orphan", told)
	}
	k.Advance(publishEvery)
	if s := b.Now(); s.Unclaimed != 0 || len(s.Pods) != 1 {
		t.Errorf("published %d unclaimed pods and %d others, want 0 and 1", s.Unclaimed, len(s.Pods))
	}
}

// A folder's unread manifest does not affect pods of the API server or of other sources.
func TestSpared_OnlyOfItsSource(t *testing.T) {
	for mark, want := range map[string]bool{"file": true, "": true, "api": false, "http": false} {
		s := sources{all: []messages.Address{messages.File, messages.APIServer}, lists: map[messages.Address]messages.SourcePodsWanted{
			messages.File: {Unread: []string{"a"}}, messages.APIServer: {}}}
		f := &messages.PodFacts{Name: "web", Namespace: "default", Sandboxes: []messages.SandboxFact{{Source: mark}}}
		f.UID = "left"
		for source, gone := range map[messages.Address]bool{messages.APIServer: false, messages.File: true} {
			said := s.lists[source]
			said.Gone = map[string]bool{"left": true}
			lists := maps.Clone(s.lists)
			lists[source] = said
			if got := (&sources{all: s.all, lists: lists}).spares(f) != ""; got != (want && !gone) {
				t.Errorf("a pod with the mark %q that left %s is spared: %v, want %v", mark, source, got, want && !gone)
			}
		}
		if got := s.spares(f) != ""; got != want {
			t.Errorf("a pod with the mark %q is spared: %v, want %v", mark, got, want)
		}
	}
}

// A running pod of the journal without a record is left alone, unless it left the journal, has another version there, or is of
// another source.
func TestSpared_WithoutARecord(t *testing.T) {
	for name, c := range map[string]struct {
		mark string
		said messages.SourcePodsWanted
		want bool
	}{
		"its record is lost":     {"submit", messages.SourcePodsWanted{}, true},
		"another one is there":   {"submit", withPods(messages.SourcePodsWanted{}, "db", "u"), true},
		"it was withdrawn":       {"submit", messages.SourcePodsWanted{Gone: map[string]bool{"left": true}}, false},
		"it was submitted again": {"submit", withPods(messages.SourcePodsWanted{}, "web", "new"), false},
		"it has no mark":         {"", messages.SourcePodsWanted{}, false},
		"it is of a file":        {"file", messages.SourcePodsWanted{}, false},
	} {
		c.said.Journal = "/journal"
		s := sources{all: []messages.Address{messages.File, messages.Submit}, lists: map[messages.Address]messages.SourcePodsWanted{
			messages.File: {}, messages.Submit: c.said}}
		f := &messages.PodFacts{UID: "left", Name: "web", Namespace: "default", Sandboxes: []messages.SandboxFact{{Source: c.mark}}}
		if got := s.spares(f) == "/journal"; got != c.want || s.unwanted(f) == c.want {
			t.Errorf("%s: spared %v, want %v", name, got, c.want)
		}
	}
}
