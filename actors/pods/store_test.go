package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func recordOf(message string) record {
	return record{Final: &v1.PodStatus{Phase: v1.PodFailed, Message: message}}
}

// A write for one more finished pod touches one file, however many there are.
func TestOneMorePodWritesOneFile(t *testing.T) {
	for _, n := range []int{1, 100} {
		s := newStore(t.TempDir())
		records := map[string]record{}
		for i := range n {
			records[fmt.Sprint("u", i)] = recordOf("same")
		}
		if err := s.write(records); err != nil {
			t.Fatal(err)
		}
		files := func() map[string]os.FileInfo {
			entries, err := os.ReadDir(s.dir)
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]os.FileInfo{}
			for _, e := range entries {
				if out[e.Name()], err = e.Info(); err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		before := files()
		records["more"] = recordOf("same")
		delete(records, "u0")
		if err := s.write(records); err != nil {
			t.Fatal(err)
		}
		var written []string
		for name, info := range files() {
			if was := before[name]; was == nil || !os.SameFile(was, info) || !was.ModTime().Equal(info.ModTime()) {
				written = append(written, fmt.Sprint(name, " ", info.Size()))
			}
		}
		if want := []string{fmt.Sprint("more.json ", before["u0.json"].Size())}; !slices.Equal(written, want) {
			t.Errorf("%d pods: written are %v, want %v", n, written, want)
		}
		if len(files()) != n {
			t.Errorf("%d files", len(files()))
		}
	}
}

// A damaged file is reported and kept aside, and no other pod loses its record. The rest of an interrupted write is removed.
func TestADamagedRecord(t *testing.T) {
	s := newStore(t.TempDir())
	if err := s.write(map[string]record{"good": recordOf("x"), "bad": recordOf("x")}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"bad.json": "{", ".cut.json.tmp": "{"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, _, errs := newStore(filepath.Dir(s.dir)).load()
	if len(got) != 1 || got["good"].Final == nil || len(errs) != 1 || !strings.Contains(fmt.Sprint(errs), "bad.json.corrupt") {
		t.Errorf("%v: %+v", errs, got)
	}
	if _, err := os.Stat(filepath.Join(s.dir, ".cut.json.tmp")); !os.IsNotExist(err) {
		t.Errorf("the rest of a write: %v", err)
	}
}

// One file that cannot be written delays the confirmation of its own pod alone.
func TestOneRecordThatCannotBeWritten(t *testing.T) {
	s := newStore(t.TempDir())
	if err := os.MkdirAll(filepath.Join(s.path("bad"), "in", "the", "way"), 0o700); err != nil {
		t.Fatal(err)
	}
	b := board.New()
	kind := newWith(Options{Sources: []messages.Address{messages.File}, Board: b, LocalNode: small()}, s)
	n := &node{Kit: supervisortest.New(t, messages.Pods, kind("pods")), board: b}
	n.RunWork()
	n.known()
	if err := os.MkdirAll(filepath.Join(s.path("bad"), "in", "the", "way"), 0o700); err != nil { // it was kept aside
		t.Fatal(err)
	}
	wants(n.Kit, messages.File, static(pod("bad", "bad")), static(pod("good", "good")))
	for _, uid := range []string{"bad", "good"} {
		n.Send(messages.PodAddress(uid), messages.PodEnded{UID: uid, Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	}
	n.RunWork()
	for uid, unkept := range map[string]bool{"bad": true, "good": false} {
		if w := n.desired(uid); w.Final == nil || w.Unkept != unkept {
			t.Errorf("pod %s is told final %v, unkept %t", uid, w.Final != nil, w.Unkept)
		}
	}
}

// After a rollback to an older version, which keeps the records aside that it cannot read, and the next upgrade, the records are
// there again. One that the older version wrote since is newer.
func TestStore_RecordsAreReadBackAfterARollback(t *testing.T) {
	dir := t.TempDir()
	s := newStore(dir)
	if err := s.write(map[string]record{"ended": recordOf("v2"), "again": recordOf("v2"), "damaged": recordOf("v2")}); err != nil {
		t.Fatal(err)
	}
	aside := func(uid string) string { return s.path(uid) + atomicfile.AsideSuffix }
	for _, uid := range []string{"ended", "again", "damaged"} {
		if err := os.Rename(s.path(uid), aside(uid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(aside("damaged"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newStore(dir).write(map[string]record{"again": recordOf("v1")}); err != nil { // the older version
		t.Fatal(err)
	}
	s = newStore(dir)
	got, _, errs := s.load()
	if len(got) != 2 || got["ended"].Final == nil || got["again"].Final.Message != "v1" || len(errs) > 0 {
		t.Errorf("got %+v, %v, want the ended pod of the newer version, and the one that ended again", got, errs)
	}
	if back := s.takeBack(); !back["ended"] || back["again"] || len(s.takeBack()) != 0 {
		t.Errorf("read back are %v, want that of the ended pod, once", back)
	}
	got["again"], got["damaged"] = recordOf("new"), recordOf("new")
	if err := s.write(got); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"ended", "again", "damaged"} {
		if _, err := os.Stat(aside(uid)); !os.IsNotExist(err) {
			t.Errorf("the record of pod %s is still aside: %v", uid, err)
		}
	}
}

// A pod that ended under a newer version, and that an older one has run again without its record, is not ended by that record.
func TestStore_ReadBackEndsNoRunningPod(t *testing.T) {
	for name, c := range map[string]struct{ alive, ends bool }{"runs again": {true, false}, "remains": {false, true}} {
		dir := t.TempDir()
		s := newStore(dir)
		if err := s.write(map[string]record{"u": recordOf("v2")}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.path("u"), s.path("u")+atomicfile.AsideSuffix); err != nil {
			t.Fatal(err)
		}
		k := supervisortest.New(t, messages.Pods, New(Options{
			Sources: []messages.Address{messages.File}, Board: board.New(), LocalNode: small(), Dir: dir})("pods"))
		k.RunWork()
		f := messages.PodFacts{UID: "u", Name: "u", Namespace: "default"}
		if c.alive {
			f.Containers = []messages.ContainerFact{{ID: "c", Name: "c", State: messages.ContainerRunning}}
		}
		k.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: k.Now().Add(time.Millisecond), Pods: []messages.PodFacts{f}})
		wants(k, messages.File, static(pod("u", "u")))
		k.Send(messages.PodAddress("u"), messages.GetDesired{UID: "u"})
		if w := sent[messages.PodWanted](k); len(w) == 0 || w[0].Final != nil != c.ends {
			t.Errorf("%s: sent %+v, want a final status: %t", name, w, c.ends)
		}
		k.RunWork()
		if _, err := os.Stat(s.path("u")); os.IsNotExist(err) == c.ends {
			t.Errorf("%s: the record: %v", name, err)
		}
	}
}
