package pods

import (
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// foundAs sends an audit with one pod of that name.
func foundAs(k *supervisortest.Kit, name, uid, source string) {
	k.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: k.Now().Add(time.Millisecond), Pods: []messages.PodFacts{{
		UID: uid, Name: name, Namespace: "default", Sandboxes: []messages.SandboxFact{{ID: "s", Source: source}},
	}}})
}

// Two sources list pods of one name, and one of them runs. After a restart of the agent the running pod is adopted, whichever
// source reports first, and the other waits.
func TestTheOneThatRunsKeepsItsName(t *testing.T) {
	a, b := pod("web", "a"), pod("web", "b")
	for _, runs := range []string{"a", "b"} {
		for _, first := range []string{"a", "b"} {
			k := begin(t)
			foundAs(k, "web", runs, map[string]string{"a": "file", "b": "other"}[runs])
			say := map[string]func(){"a": func() { wants(k, messages.File, a) }, "b": func() { wants(k, other, b) }}
			second := map[string]string{"a": "b", "b": "a"}[first]
			say[first]()
			if first != runs && len(k.Spawned) != 0 {
				t.Errorf("%s runs, %s is heard first: started %v beside it", runs, first, k.Spawned)
			}
			say[second]()
			if !slices.Equal(k.Spawned, []string{runs}) {
				t.Errorf("%s runs, %s is heard first: started %v", runs, first, k.Spawned)
			}
		}
	}
}

// A pod waits while another source's pod has its name, and its reason names that source.
func TestANameThatIsTakenIsSaid(t *testing.T) {
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.File, other}, Board: b, Dir: t.TempDir(),
	})("pods"))
	k.RunWork()
	audit(k)
	wants(k, messages.File, pod("web", "a"))
	wants(k, other, pod("web", "b"))
	k.Advance(publishEvery)
	var got *messages.Reason
	for _, p := range b.Now().Pods {
		if p.Pod.UID == "b" {
			got = p.Waiting
		}
	}
	if got == nil || got.Code != "NameTaken" ||
		got.Message != "sources/file wants a pod of the same name, which comes first: remove one of the two" {
		t.Errorf("it waits for %+v", got)
	}
}

// If some sources may never report, only unlisted pods with our own mark are ended.
func TestUnheardSource_OnlyOwnPodsEnd(t *testing.T) {
	for source, want := range map[string]int{"submit": 1, "file": 0, "api": 0, "": 0} {
		k := supervisortest.New(t, messages.Pods, New(Options{
			Sources: []messages.Address{other}, Unheard: true, Own: "submit", Board: board.New(),
			Dir: t.TempDir(),
		})("pods"))
		k.RunWork()
		foundAs(k, "web", "u", source)
		if len(k.Spawned) != 0 {
			t.Errorf("%q: ended before the source was heard", source)
		}
		wants(k, other)
		if len(k.Spawned) != want {
			t.Errorf("%q: %d are ended, want %d", source, len(k.Spawned), want)
		}
	}
}

// After a manifest changed while no agent ran, the successor starts as soon as its own source has reported: the API server, which
// has not, may be that very pod.
func TestStaticPod_StartsWithoutTheAPIServer(t *testing.T) {
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{messages.File, messages.APIServer}, Board: board.New(),
		Dir: t.TempDir(),
	})("pods"))
	k.RunWork()
	foundAs(k, "web", "old", "file")
	if wants(k, messages.File, pod("web", "new")); !slices.Equal(k.Spawned, []string{"old"}) {
		t.Fatalf("spawned %v: the one before it has to end", k.Spawned)
	}
	k.Send(messages.PodAddress("old"), messages.PodEnded{UID: "old", Gone: true})
	if k.Send(messages.Pods, messages.ChildStopped{Name: "old"}); !slices.Equal(k.Spawned, []string{"old", "new"}) {
		t.Errorf("spawned %v", k.Spawned)
	}
	foundAs(k, "cloud", "c", "api")
	if len(k.Spawned) != 2 {
		t.Errorf("spawned %v: whose pod that is nobody has said", k.Spawned)
	}
}

// A source that cannot report its pods has problems, and does not count as having reported.
func TestFailingSource_CountsAsUnreported(t *testing.T) {
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{
		Sources: []messages.Address{other}, Board: b, Dir: t.TempDir(),
	})("pods"))
	k.RunWork()
	k.Advance(publishEvery)
	if now := b.Now(); now.Version == 0 || now.Audited || now.Complete() {
		t.Errorf("before the runtime has said what runs: %+v", now)
	}
	audit(k, "u")
	k.Send(other, messages.SourcePodsWanted{Source: other, Unknown: true,
		Problems: []messages.ManifestProblem{{Path: "p", Message: "no"}}})
	k.Advance(publishEvery)
	if now := b.Now(); len(k.Spawned) != 0 || len(now.Problems) != 1 || len(now.Unheard) != 1 || !now.Audited || now.Complete() {
		t.Errorf("spawned %v, problems %v, unheard %v", k.Spawned, now.Problems, now.Unheard)
	}
	wants(k, other)
	k.Advance(publishEvery)
	if now := b.Now(); len(k.Spawned) != 1 || len(now.Problems) != 0 || len(now.Unheard) != 0 || !now.Complete() ||
		now.Life.IsZero() {
		t.Errorf("spawned %v, problems %v, unheard %v", k.Spawned, now.Problems, now.Unheard)
	}
}
