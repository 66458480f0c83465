package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
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
	kind := newWith(Options{Sources: []messages.Address{messages.File}, Board: b, Here: small()}, s)
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
