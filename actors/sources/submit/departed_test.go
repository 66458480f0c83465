package submit

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// uidOf returns the UID of the submitted pod with that name in its manifest.
func (r *rig) uidOf(name string) string {
	r.Helper()
	sent := r.ask(messages.GetSubmissions{Namespace: "default", Name: name}).(messages.SubmissionsReported)
	return sent.Submissions[0].UID
}

// gone fails the test unless exactly these pods are reported as gone, besides the desired ones.
func (r *rig) gone(desired string, want ...string) messages.SourcePodsWanted {
	r.Helper()
	m := r.wants(desired)
	if got := slices.Sorted(maps.Keys(m.Gone)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		r.Errorf("gone are %v, want %v", got, want)
	}
	return m
}

func (r *rig) withdraw(name string) {
	r.Helper()
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: name})), "default/"+name+"-node-1 deleted")
}

// damage makes the record of a submission unreadable.
func (r *rig) damage(name string) string {
	r.Helper()
	path := key{"default", name}.file(r.opts.Dir)
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// A withdrawn or replaced pod is reported as gone until it has ended, also when the next process finds another record
// damaged.
func TestDeparted_OutlivesTheProcess(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"), yaml("log", "one"))
	web, db := r.uidOf("web"), r.uidOf("db")
	r.submit(yaml("db", "two"))
	r.withdraw("web")
	r.gone("default/db-node-1=two default/log-node-1=one", web, db)
	path := r.damage("log")
	r.start()
	if m := r.gone("default/db-node-1=two", web, db); !slices.Equal(m.Unread, []string{path}) {
		t.Errorf("unread %v, want %s", m.Unread, path)
	}
	r.submit(yaml("web", "one")) // the same pod
	r.gone("default/db-node-1=two default/web-node-1=one", db)
	r.start()
	r.gone("default/db-node-1=two default/web-node-1=one", db)
}

// The grace period of a withdrawal survives the process, as long as the pod exists.
func TestDeparted_KeepsTheGracePeriod(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	web, db := r.uidOf("web"), r.uidOf("db")
	three := int64(3)
	r.withdraw("db")
	r.ask(messages.WithdrawPod{Namespace: "default", Name: "web", Grace: &three})
	for range 2 {
		if got := r.gone("", web, db).Graces; !maps.Equal(got, map[string]int64{web: 3}) {
			t.Errorf("grace periods %v, want 3 s for %s alone", got, web)
		}
		r.start()
	}
	r.opts.Board.Publish(board.Snapshot{Audited: true})
	r.clock.Step(time.Hour)
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
	if got := r.gone("").Graces; len(got) > 0 {
		t.Errorf("grace periods %v, want none once the pods are over", got)
	}
}

// A departed pod is dropped when the board lacks it, and not while it is ending.
func TestDeparted_IsPruned(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	web := r.uidOf("web")
	r.withdraw("web")
	check := func() {
		r.clock.Step(time.Hour)
		r.kit.Advance(checkEvery)
		r.kit.RunWork()
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node-1", UID: types.UID(web)}}
	r.opts.Board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{{Pod: pod, Source: messages.Submit, Ending: "x"}}})
	check()
	r.gone("", web)
	r.opts.Board.Publish(board.Snapshot{Audited: true})
	check()
	r.gone("")
	r.start()
	r.gone("")
}

// The list of departed pods is written before the record is removed. A kill between the two leaves the pod desired.
func TestDeparted_IsWrittenFirst(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	temporary := filepath.Join(r.opts.Dir, ".departed.tmp")
	if err := os.MkdirAll(filepath.Join(temporary, "x"), 0o700); err != nil { // the list cannot be written
		t.Fatal(err)
	}
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "web"})), "failure")
	r.gone("default/web-node-1=one")
	if err := os.RemoveAll(temporary); err != nil {
		t.Fatal(err)
	}
	j := r.actor.(*actor).journal
	if err := j.depart(j.records[key{"default", "web"}], nil); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.gone("default/web-node-1=one")
	if files := r.files(); !slices.Equal(files, []string{filepath.Base(key{"default", "web"}.file(""))}) {
		t.Errorf("files %v, want the record alone", files)
	}
}

// A damaged list of departed pods is a warning: no running pod is left alone for it.
func TestDeparted_DamagedList(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	r.withdraw("web")
	list := filepath.Join(r.opts.Dir, "departed")
	if err := os.WriteFile(list, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	m := r.gone("default/db-node-1=one")
	if len(m.Problems) != 1 || m.Problems[0].Path != list || !m.Problems[0].Warning || len(m.Unread) > 0 {
		t.Errorf("problems %+v, unread %v, want a warning of %s", m.Problems, m.Unread, list)
	}
}

// A withdrawal succeeds on a full disk, and the departed pod is recorded in the freed space.
func TestDeparted_OnAFullDisk(t *testing.T) {
	r := newRig(t)
	if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", r.opts.Dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a full disk is shown on a small tmpfs; mounting needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(r.opts.Dir, unix.MNT_DETACH) })
	must(t, newJournal(r.opts).mark())
	r.start()
	r.submit(yaml("web", "one"))
	web := r.uidOf("web")
	if err := os.WriteFile(filepath.Join(r.opts.Dir, ".filler"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	r.withdraw("web")
	r.start()
	r.gone("", web)
}

// A pod of another source that is ending can be given less time; one of the API server is hurried there.
func TestWithdraw_HurriesEndingPodsOfFiles(t *testing.T) {
	r := newRig(t)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node-1", UID: "of-a-file"}}
	publish := func(source messages.Address, ending string) {
		r.opts.Board.Publish(board.Snapshot{Audited: true, Pods: []board.Pod{{Pod: pod, Source: source, Ending: ending}}})
	}
	hurry := messages.WithdrawPod{Namespace: "default", Name: "web", Grace: new(int64(1))}
	publish(messages.APIServer, "x")
	r.says(said(r.ask(hurry)), "unknown")
	publish(messages.File, "")
	r.says(said(r.ask(hurry)), "conflict")
	publish(messages.File, "x")
	r.says(said(r.ask(hurry)), "default/web-node-1 hurried")
	if m := r.wants(""); m.Graces["of-a-file"] != 1 {
		t.Errorf("the grace periods are %v", m.Graces)
	}
}
