package file

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/sources/base"
)

func TestFolderOfManifests(t *testing.T) {
	b := newBench(t)
	b.write("b.yaml", "pod b\n---\npod c\n")
	b.write("a.json", "pod a\n")
	b.wants(b.start(), "a b c")
	b.write("d.yaml", "pod d\n")
	b.wants(b.look(), "a b c d")
	b.rename("d.yaml", "0.yaml")
	b.wants(b.look(), "d a b c")
	b.write("b.yaml", "pod c\n")
	b.wants(b.look(), "d a c")
}

func TestUnchangedManifestsKeepTheirPods(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n---\npod b - old\n")
	before := b.start()
	b.write("a", "pod a\n---\npod b - old\n")
	if l := b.look(); l.changed || !samePods(l.pods, before.pods) {
		t.Fatal("the same content gave other pods")
	}
	for range 3 {
		if l := b.check(); l.changed || !l.checked || !samePods(l.pods, before.pods) {
			t.Fatal("a check gave other pods")
		}
	}
	if b.parser.calls != 1 {
		t.Fatalf("parsed %d times, want once", b.parser.calls)
	}
	b.write("a", "pod a\n---\npod b - new\n")
	l := b.look()
	b.wants(l, "a b=new")
	if l.pods[0] != before.pods[0] || l.pods[1] == before.pods[1] {
		t.Fatal("the document that was left alone must keep its pod, and only that")
	}
	b.save()
	seen := seenOf(l)
	b.clock.Step(time.Hour)
	if l := b.start(); seenOf(l) != seen {
		t.Fatalf("after a restart it was seen first at %q, before at %q", seenOf(l), seen)
	}
}

// A manifest that is deleted and created again restarts its pod, even without a look in between, as does one that is moved to
// another folder and back. One that is replaced, or renamed in its folder, does not.
func TestADeletedManifestThatComesBack(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.write("b", "pod b\n")
	b.start()
	b.remove("a")
	b.write("a", "pod a\n")
	b.wants(b.look(), "a b")
	if got := names(b.between); got != "b" {
		t.Errorf("in between %q was wanted, not b", got)
	}
	b.remove("a")
	b.wants(b.look(), "a b") // perhaps it was moved
	b.write("a", "pod a\n")
	b.wants(b.look(), "a b")
	if got := names(b.between); got != "b" {
		t.Errorf("in between %q was wanted, not b", got)
	}
	b.between = nil
	b.rename("a", "../a")
	b.rename("../a", "a")
	b.wants(b.look(), "a b")
	if got := names(b.between); got != "b" {
		t.Errorf("after a move away and back %q was wanted in between, not b", got)
	}
	b.write("new", "pod a\n")
	b.rename("new", "a")
	b.wants(b.look(), "a b")
	b.rename("a", "a~")
	b.write("a", "pod a\n")
	b.wants(b.look(), "a b")
	if b.between != nil {
		t.Errorf("for a manifest that was replaced %q was wanted", names(b.between))
	}
	b.remove("b")
	b.look()
	b.wants(b.wait(waitGone), "a")
	b.write("b", "pod b\n")
	if b.wants(b.look(), "a b"); b.between != nil {
		t.Errorf("for a new manifest %q was wanted", names(b.between))
	}
}

// The worker also returns two results.
func TestADeletedManifestIsReportedTwice(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.remove("a")
	b.write("a", "pod a\n")
	for _, want := range []string{"", "a"} {
		if l := b.r.next(t.Context()); names(l.pods) != want {
			t.Errorf("it wants %q, not %q", names(l.pods), want)
		}
	}
}

func TestAWriterIsWaitedFor(t *testing.T) {
	b := newBench(t)
	b.start()
	f, err := os.Create(b.path("a"))
	must(t, err)
	_, err = f.WriteString("pod a\n---\n")
	must(t, err)
	b.wants(b.look(), "")
	_, err = f.WriteString("pod b\n")
	must(t, err)
	b.wants(b.wait(quietWhileWritten), "") // the writer wrote in between
	must(t, f.Close())
	b.wants(b.look(), "a b")
}

func TestQuietWriter_IsNotAwaitedForever(t *testing.T) {
	b := newBench(t)
	b.start()
	f, err := os.Create(b.path("a"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	_, err = f.WriteString("pod a\n")
	must(t, err)
	l := b.look()
	b.wants(l, "")
	if want := b.clock.Now().Add(quietWhileWritten); !l.wakeAt.Equal(want) {
		t.Fatalf("looks again at %v, want %v", l.wakeAt, want)
	}
	b.wants(b.wait(quietWhileWritten), "a")
}

func TestEndlessWriter_IsNotAwaitedForever(t *testing.T) {
	b := newBench(t)
	b.start()
	f, err := os.Create(b.path("a"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	b.look()
	for range int(waitAtMost/quietWhileWritten) - 1 {
		_, err = f.WriteString("pod a\n")
		must(t, err)
		b.wants(b.wait(quietWhileWritten), "")
	}
	_, err = f.WriteString("pod b\n")
	must(t, err)
	if l := b.wait(quietWhileWritten); l.wakeAt.After(b.clock.Now()) {
		t.Fatalf("looks again at %v, want at once", l.wakeAt)
	}
	b.wait(0)
	if got := names(b.last.pods); !strings.HasSuffix(got, " b") {
		t.Fatalf("pods %q after the whole wait", got)
	}
}

func TestAnErrorIsReportedOnlyWhenItStays(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.write("a", "nonsense\n")
	b.wants(b.look(), "a")
	b.write("a", "pod a - mended\n")
	b.wants(b.look(), "a=mended")
	b.wants(b.wait(time.Minute), "a=mended")

	b.write("a", "nonsense\n")
	l := b.look()
	b.wants(l, "a=mended")
	if want := b.clock.Now().Add(waitBroken); !l.wakeAt.Equal(want) {
		t.Fatalf("looks again at %v, want %v", l.wakeAt, want)
	}
	b.clock.Step(waitBroken / 2)
	b.write("a", "other nonsense\n") // restarts the delay
	b.wants(b.look(), "a=mended")
	b.wants(b.wait(waitBroken/2), "a=mended")
	b.wants(b.wait(waitBroken/2), "a=mended", "a:0  not a manifest: other nonsense kept=true")
	if l := b.check(); l.changed || !l.wakeAt.IsZero() {
		t.Fatalf("a check found news: %+v", l)
	}
	b.write("a", "pod a - mended\n")
	b.wants(b.look(), "a=mended")
}

func TestReader_ReadsAFileThatKeepsChanging(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	for range int(waitAtMost / (waitBroken / 2)) {
		b.write("a", strings.Repeat("x", b.parser.calls+1))
		b.wants(b.look(), "a")
		b.clock.Step(waitBroken / 2)
	}
	b.clock.Step(waitBroken)
	b.write("a", "the last straw")
	b.wants(b.look(), "a", "the last straw kept=true")
}

func TestABadManifestHidesNoGoodOne(t *testing.T) {
	b := newBench(t)
	b.write("a", "nonsense\n")
	b.write("b", "pod b\n")
	b.wants(b.start(), "b")
	b.wants(b.wait(waitBroken), "b", "a:0  not a manifest: nonsense kept=false")
	b.write("c", "pod c\n")
	b.wants(b.look(), "b c", "a:0")
	b.remove("a")
	b.look()
	b.wants(b.wait(waitGone), "b c")
}

func TestAParserThatPanicsHidesNoGoodOne(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.write("b", "pod b\n")
	b.start()
	b.write("a", "panic\n")
	b.look()
	b.wants(b.wait(waitBroken), "a b", "a:0  reading it fails by a bug of the agent: met the toy's bug kept=true")
}

func TestLastGoodSurvivesARestart(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n---\npod b\n")
	b.write("c", "pod c\n")
	b.write("d", "pod d\n")
	b.start()
	b.save()
	b.write("a", "pod a - new\n---\nbad b\n")
	b.remove("d")
	l := b.start()
	b.wants(l, "a b c") // nor are the good documents of a broken manifest accepted yet
	b.wants(b.wait(waitBroken), "a=new b c", "a:3 b a bad document kept=true")
	b.save()
	b.wants(b.start(), "a=new b c")
	b.wants(b.wait(waitBroken), "a=new b c", "a:3 b a bad document kept=true")
	b.remove("a")
	b.look()
	b.wants(b.wait(waitGone), "c")
	b.save()
	b.wants(b.start(), "c")
}

func TestAnUnreadableCheckpointIsReportedAndReplaced(t *testing.T) {
	b := newBench(t)
	must(t, os.Mkdir(b.state, 0o700))
	must(t, os.WriteFile(base.Path(b.state), []byte("{"), 0o600))
	b.write("a", "pod a\n")
	l := b.start()
	b.wants(l, "a")
	if len(l.notes) != 1 || !strings.Contains(l.notes[0], "last-good.json") {
		t.Fatalf("notes %q do not name the checkpoint", l.notes)
	}
	if l.good == nil {
		t.Fatal("nothing was given to be saved")
	}
	b.save()
	if l := b.start(); len(l.notes) != 0 {
		t.Fatalf("notes %q about the new checkpoint", l.notes)
	}
	if kept, err := filepath.Glob(filepath.Join(b.state, "*corrupt*")); err != nil || len(kept) != 1 {
		t.Fatalf("kept aside: %v, %v", kept, err)
	}
}

func TestCheckpoint_OfAnotherNodeIsIgnored(t *testing.T) {
	for _, g := range []*lastGood{
		{Path: "/elsewhere", NodeName: testNode}, {NodeName: "another"},
	} {
		b := newBench(t)
		b.write("a", "nonsense\n")
		if g.Path == "" {
			g.Path = b.dir
		}
		pod := b.parser.pod(b.path("a"), []string{"a"})
		g.Manifests = []savedManifest{{Path: b.path("a"), Documents: []document{{Pod: pod}}}}
		must(t, base.Save(b.state, g))
		b.start()
		b.wants(b.wait(waitBroken), "", "a:0")
	}
}

func TestEditorsFilesAreIgnored(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	for _, name := range []string{".a.swp", ".hidden", "a~", "#a#", "4913", "a.swp", "a.swo", "..data"} {
		b.write(name, "nonsense\n")
	}
	b.wants(b.start(), "a")
	b.wants(b.wait(time.Minute), "a")
	if l := b.check(); l.changed || l.files != 1 {
		t.Fatalf("looked at %d files, want one", l.files)
	}
	for _, name := range []string{"a.yaml", "#", "a#", "#a", "49130", "a.bak"} {
		if ignored(name) {
			t.Errorf("%q is ignored", name)
		}
	}
}

func TestEditorsThatMoveTheOldFileAway(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.rename("a", "a~")
	b.wants(b.look(), "a")
	b.clock.Step(waitGone / 2)
	b.write("a", "pod a - new\n")
	b.wants(b.look(), "a=new")
	b.remove("a~")
	b.wants(b.wait(time.Minute), "a=new")
}

func TestADeletedManifest(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.write("b", "pod b\n")
	b.start()
	b.remove("a")
	b.wants(b.look(), "a b")
	b.wants(b.wait(waitGone), "b")
}

func TestAManifestThatIsMovedIsNoRival(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod x uid-1\n")
	before := b.start()
	b.rename("a", "b")
	l := b.look()
	b.wants(l, "x")
	if l.pods[0].UID != before.pods[0].UID {
		t.Fatal("another pod")
	}
	b.wants(b.wait(waitGone), "x")
}

func TestRivals(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod x u1\n---\npod x u2\n")
	b.write("b", "pod x u3\n---\npod y u1\n---\npod z\n")
	b.wants(b.start(), "x z", "a pod default/x-node-1 is named earlier in this file",
		"a pod default/x-node-1 is named by "+b.path("a"),
		"b:0 default/y-node-1 a pod with the UID u1, default/x-node-1 is named by "+b.path("a"))
	b.remove("a")
	b.look()
	b.wants(b.wait(waitGone), "x y z")
}

// A copy of a manifest never takes over a pod, whatever its name and whatever restarts: the file that has the pod keeps it.
func TestRivals_TheHolderKeepsItsPod(t *testing.T) {
	b := newBench(t)
	b.write("web", "pod x - one\n")
	b.wants(b.start(), "x=one")
	b.write("copy", "pod x - one\n")
	left := "copy:0 default/x-node-1 a pod default/x-node-1 is named by " + b.path("web")
	b.wants(b.look(), "x=one", left)
	b.write("web", "pod x - two\n")
	b.wants(b.look(), "x=two", left)
	b.save()
	b.start()
	b.wants(b.last, "x=two", left)
	b.remove("web")
	b.look()
	b.wants(b.wait(waitGone), "x=one")
	b.write("web", "pod x - two\n")
	b.wants(b.look(), "x=one", "web:0 default/x-node-1 a pod default/x-node-1 is named by "+b.path("copy"))
}

// A copy takes over no pod while the original is deleted and written again, nor while the original becomes a copy itself.
func TestRivals_TheRewrittenHolderKeepsItsPod(t *testing.T) {
	left := func(b *bench) string {
		return "web.bak:0 default/x-node-1 a pod default/x-node-1 is named by " + b.path("web")
	}
	finish := func(b *bench) {
		b.t.Helper()
		b.wants(b.last, "x=two z", left(b))
		if got := names(b.between); got != "z" {
			b.t.Errorf("in between %q was desired, want z alone", got)
		}
		b.wants(b.wait(time.Minute), "x=two z", left(b))
		b.save()
		b.wants(b.start(), "x=two z", left(b))
	}
	t.Run("deleted and written", func(t *testing.T) {
		b := newBench(t)
		b.write("web", "pod x - one\n")
		b.write("z", "pod z\n")
		b.start()
		b.write("web.bak", "pod x - one\n")
		b.wants(b.look(), "x=one z", left(b))
		b.remove("web")
		b.write("web", "pod x - two\n")
		b.look()
		finish(b)
	})
	t.Run("deleted, looked at and written", func(t *testing.T) {
		b := newBench(t)
		b.write("web", "pod x - one\n")
		b.write("z", "pod z\n")
		b.start()
		b.write("web.bak", "pod x - one\n")
		b.look()
		b.remove("web")
		b.look()
		b.write("web", "pod x - two\n")
		b.look()
		finish(b)
	})
	t.Run("renamed and written", func(t *testing.T) {
		b := newBench(t)
		b.write("web", "pod x - one\n")
		b.write("z", "pod z\n")
		b.start()
		b.rename("web", "web.bak")
		b.wants(b.look(), "x=one z")
		b.clock.Step(waitGone / 5)
		b.write("web", "pod x - two\n")
		b.look()
		b.wants(b.last, "x=two z", left(b))
		b.wants(b.wait(time.Minute), "x=two z", left(b))
		b.save()
		b.wants(b.start(), "x=two z", left(b))
	})
}

func TestTheFolderIsMissingAndComesAndGoes(t *testing.T) {
	b := newBench(t)
	must(t, os.RemoveAll(b.dir))
	b.dir = filepath.Join(b.root, "deep", "down", "manifests")
	b.wants(b.start(), "", "there is no such file or folder")
	must(t, os.MkdirAll(filepath.Dir(b.dir), 0o755))
	b.wants(b.look(), "", "there is no such file or folder")
	must(t, os.Mkdir(b.dir, 0o755))
	b.write("a", "pod a\n")
	b.wants(b.look(), "a")

	must(t, os.Rename(filepath.Join(b.root, "deep"), filepath.Join(b.root, "away")))
	b.wants(b.look(), "a")
	b.wants(b.wait(waitPlace-time.Millisecond), "a")
	must(t, os.MkdirAll(b.dir, 0o755))
	b.write("a", "pod a - back\n")
	b.wants(b.look(), "a=back")

	must(t, os.RemoveAll(b.dir))
	b.wants(b.look(), "a=back")
	b.wants(b.wait(waitPlace), "", "there is no such file or folder")
	must(t, os.Mkdir(b.dir, 0o755))
	b.write("b", "pod b\n")
	b.wants(b.look(), "b")
}

// A node that kubeadm joined has no folder of manifests.
func TestReader_MissingFolderOfClusterNode(t *testing.T) {
	b := newBench(t)
	b.cluster = true
	must(t, os.Remove(b.dir))
	b.wants(b.start(), "")
	must(t, os.Mkdir(b.dir, 0o755))
	b.write("a", "pod a\n")
	b.wants(b.look(), "a")
	must(t, os.RemoveAll(b.dir))
	b.look()
	b.wants(b.wait(waitPlace), "", "there is no such file or folder")
	b.wants(b.look(), "", "there is no such file or folder")
	must(t, os.Mkdir(b.dir, 0o755))
	b.wants(b.look(), "")
}

func TestReader_DoubtsAMissingFolderAtStart(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.save()
	must(t, os.RemoveAll(b.dir))
	if l := b.start(); l.podsKnown {
		t.Fatal("heard, although the folder may be being replaced")
	}
	b.wants(b.wait(waitPlace), "", "there is no such file or folder")
}

func TestTheFolderIsReplacedByALink(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a uid\n")
	before := b.start()
	aside := filepath.Join(b.root, "aside")
	must(t, os.Rename(b.dir, aside))
	b.look()
	must(t, os.Symlink("aside", b.dir))
	l := b.look()
	b.wants(l, "a")
	if !samePods(l.pods, before.pods) {
		t.Fatal("the pods changed")
	}
	b.wants(b.wait(time.Minute), "a")
	b.write("b", "pod b\n")
	b.wants(b.look(), "a b")
	other := filepath.Join(b.root, "other")
	must(t, os.Mkdir(other, 0o755))
	must(t, os.WriteFile(filepath.Join(other, "c"), []byte("pod c\n"), 0o600))
	must(t, os.Symlink(other, filepath.Join(b.root, "link")))
	must(t, os.Rename(filepath.Join(b.root, "link"), b.dir))
	b.look()
	b.wants(b.wait(waitGone), "c")
}

func TestLinksAsAConfigMapHasThem(t *testing.T) {
	b := newBench(t)
	publish := func(version, text string) {
		must(t, os.Mkdir(b.path(version), 0o755))
		must(t, os.WriteFile(b.path(filepath.Join(version, "a")), []byte(text), 0o600))
		must(t, os.Symlink(version, b.path("..data_tmp")))
		b.rename("..data_tmp", "..data")
	}
	publish("..1", "pod a - 1\n")
	must(t, os.Symlink("..data/a", b.path("a")))
	b.wants(b.start(), "a=1")
	publish("..2", "pod a - 2\n")
	b.wants(b.look(), "a=2")
	must(t, os.RemoveAll(b.path("..1")))
	b.wants(b.look(), "a=2")
	must(t, os.WriteFile(b.path("..2/a"), []byte("pod a - 3\n"), 0o600))
	b.wants(b.look(), "a=3")
	b.remove("a")
	b.look()
	b.wants(b.wait(waitGone), "")
}

func TestALinkThatLeadsToNothing(t *testing.T) {
	b := newBench(t)
	target := filepath.Join(b.root, "target")
	must(t, os.WriteFile(target, []byte("pod a\n"), 0o600))
	must(t, os.Symlink(target, b.path("a")))
	b.wants(b.start(), "a")
	must(t, os.Remove(target))
	b.wants(b.look(), "a")
	b.wants(b.wait(waitBroken), "a", "it is a link that leads to nothing kept=true")
	must(t, os.WriteFile(target, []byte("pod a - again\n"), 0o600))
	b.wants(b.look(), "a=again")
	must(t, os.Remove(target))
	must(t, os.Symlink("target", target))
	b.look()
	b.wants(b.wait(waitBroken), "a=again", "it cannot be read: too many levels of symbolic links kept=true")
}

func TestOneFileAsTheSource(t *testing.T) {
	b := newBench(t)
	must(t, os.Remove(b.dir))
	b.dir = filepath.Join(b.root, ".pods")
	must(t, os.WriteFile(b.dir, []byte("pod a\n"), 0o600))
	b.wants(b.start(), "a")
	must(t, os.WriteFile(b.dir, []byte("pod b\n"), 0o600))
	b.wants(b.look(), "b")
	next := filepath.Join(b.root, "next")
	must(t, os.WriteFile(next, []byte("pod c\n"), 0o600))
	must(t, os.Rename(next, b.dir))
	b.wants(b.look(), "c")
	must(t, os.WriteFile(b.dir, []byte("nonsense\n"), 0o600))
	b.look()
	b.wants(b.wait(waitBroken), "c", "not a manifest")
	must(t, os.Remove(b.dir))
	b.look()
	b.wants(b.wait(waitPlace), "", "there is no such file")
	must(t, os.Mkdir(b.dir, 0o755))
	b.write("x", "pod x\n")
	b.wants(b.look(), "x")
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.write("fifo", "pod f\n")
	b.start()
	b.remove("fifo")
	must(t, syscall.Mkfifo(b.path("fifo"), 0o600))
	must(t, os.Mkdir(b.path("folder"), 0o755))
	must(t, os.Symlink("/dev/zero", b.path("zero")))
	must(t, os.Symlink("/proc/self/mem", b.path("mem")))
	huge, err := os.Create(b.path("huge"))
	must(t, err)
	must(t, huge.Truncate(1<<40))
	must(t, huge.Close())
	b.look()
	b.wants(b.wait(waitBroken), "a f", "fifo:0  it cannot be read: it is a named pipe, not a regular file kept=true",
		"huge:0  it cannot be read: it is larger than the 10 MiB that a manifest may have kept=false",
		"mem:0  it cannot be read: input/output error", "zero:0  it cannot be read: it is a device, not a regular file")
	if l := b.check(); l.changed || !l.wakeAt.IsZero() {
		t.Fatalf("a check found news: %+v", l)
	}
}

func TestAPathThatCannotBeRead(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.save()
	aside := filepath.Join(b.root, "aside")
	must(t, os.Rename(b.dir, aside))
	must(t, os.Symlink("manifests", b.dir)) // leads to itself
	b.wants(b.look(), "a")
	b.wants(b.wait(waitBroken), "a", "manifests:0  it cannot be read: too many levels of symbolic links kept=true")
	b.wants(b.start(), "a", "manifests:0  it cannot be read: too many levels of symbolic links kept=true")
	must(t, os.RemoveAll(b.state))
	if l := b.start(); l.podsKnown {
		t.Fatal("heard, although nothing could be read, now or before")
	} else {
		b.complains(l, "too many levels of symbolic links kept=false")
	}
	must(t, os.Remove(b.dir))
	must(t, os.Rename(aside, b.dir))
	b.wants(b.look(), "a")
}

func TestLostEventsMakeEverythingBeReadAnew(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.write("a", "pod a - new\n")
	b.write("b", "pod b\n")
	b.r.watch.Collect() // and dropped
	b.wants(b.r.look(dirwatch.Changes{Lost: true}), "a=new b")
}

func TestTheKernelsQueueOverflows(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	f, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	if len(strings.TrimSpace(string(f))) > 5 {
		t.Skip("the queue is too long to fill")
	}
	// Two names alternate, since the kernel merges consecutive equal events.
	for range 1 << 15 {
		must(t, os.Chmod(b.path("a"), 0o600))
		must(t, os.Chmod(b.dir, 0o755))
	}
	b.write("z", "pod z\n")
	c := b.r.watch.Collect()
	if !c.Lost {
		t.Fatal("no overflow was noticed")
	}
	b.wants(b.r.look(c), "a z")
}

func TestWithoutInotifyTheCheckFindsChanges(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a\n")
	b.start()
	b.r.watch.Close() // no watch is available
	b.write("a", "pod a - new\n")
	b.r.watch.Wake(false)
	b.wants(b.r.look(b.r.watch.Collect()), "a=new")
}
