package submit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check runs the next check, after the board shows these running pods without a usable record.
func (r *rig) check(spared ...board.SparedPod) {
	r.opts.Board.Publish(board.Snapshot{Audited: true, Spared: spared})
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
}

// isLost asserts whether running pods of the journal are left alone, and the desired pods.
func (r *rig) isLost(want bool, pods string) messages.SourcePodsWanted {
	r.Helper()
	m := r.wants(pods)
	if got := slices.Contains(m.Unread, r.opts.Dir); got != want {
		r.Errorf("the journal is lost: %v, want %v", got, want)
	}
	return m
}

// Pods of a journal that was removed while no agent ran are left alone until each is submitted again or withdrawn.
func TestLost_RemovedFolder(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	web := board.SparedPod{UID: r.uidOf("web"), Name: "default/web-node-1", Source: messages.Submit, Manifest: r.opts.Dir}
	db := board.SparedPod{UID: r.uidOf("db"), Name: "default/db-node-1", Source: messages.Submit, Manifest: r.opts.Dir}
	other := board.SparedPod{UID: "o", Name: "default/o", Source: messages.File, Manifest: "/other"}
	must(t, os.RemoveAll(r.opts.Dir))
	r.start()
	r.isLost(true, "")
	r.check(web, db, other)
	r.isLost(true, "")
	r.start() // the folder is there now
	r.isLost(true, "")
	r.check(web, db, other)
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "web", DryRun: true})), "default/web-node-1 deleted")
	r.gone("")
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "web"})), "default/web-node-1 deleted")
	r.gone("", web.UID)
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "o"})), "unknown")
	r.submit(yaml("db", "one"))
	r.isLost(true, "default/db-node-1=one")
	r.check(other)
	r.isLost(false, "default/db-node-1=one")
	r.start()
	if m := r.isLost(false, "default/db-node-1=one"); m.Journal != r.opts.Dir || len(m.Unread) > 0 {
		t.Errorf("journal %q, unread %q, want %s", m.Journal, m.Unread, r.opts.Dir)
	}
}

// The first journal of a node ends as many pods as it names, once the board shows that none of a lost one runs.
func TestLost_FirstJournal(t *testing.T) {
	r := newRig(t)
	must(t, os.RemoveAll(r.opts.Dir))
	r.start()
	r.isLost(true, "")
	r.kit.Advance(checkEvery) // the board is empty
	r.kit.RunWork()
	r.isLost(true, "")
	r.check()
	r.isLost(false, "")
	r.start()
	r.isLost(false, "")
}

// When its file system is mounted again, a journal is read, and submissions that were accepted meanwhile are added to it.
func TestLost_Returns(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	web := board.SparedPod{UID: r.uidOf("web"), Name: "default/web-node-1", Source: messages.Submit, Manifest: r.opts.Dir}
	must(t, os.Rename(r.opts.Dir, r.opts.Dir+".away"))
	r.start()
	r.check(web)
	r.submit(yaml("db", "one"))
	r.isLost(true, "default/db-node-1=one")
	must(t, os.Rename(r.opts.Dir, r.opts.Dir+".below"))
	must(t, os.Rename(r.opts.Dir+".away", r.opts.Dir))
	r.check(web)
	r.isLost(false, "default/db-node-1=one default/web-node-1=one")
	r.start()
	r.isLost(false, "default/db-node-1=one default/web-node-1=one")
}

// Submissions and withdrawals that were accepted while the journal was lost win over the journal that returns.
func TestLost_ReturnsOlder(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	web := board.SparedPod{UID: r.uidOf("web"), Name: "default/web-node-1", Source: messages.Submit, Manifest: r.opts.Dir}
	db := board.SparedPod{UID: r.uidOf("db"), Name: "default/db-node-1", Source: messages.Submit, Manifest: r.opts.Dir}
	must(t, os.Rename(r.opts.Dir, r.opts.Dir+".away"))
	r.start()
	r.check(web, db)
	r.submit(yaml("web", "two"))
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "db"})), "default/db-node-1 deleted")
	must(t, os.Rename(r.opts.Dir, r.opts.Dir+".below"))
	must(t, os.Rename(r.opts.Dir+".away", r.opts.Dir))
	r.check(web, db)
	r.isLost(false, "default/web-node-1=two")
	r.start()
	r.isLost(false, "default/web-node-1=two")
}

// A journal that disappears while the agent runs is kept in memory, also over a restart of the actor. The next submission writes
// all of it again.
func TestLost_WhileTheAgentRuns(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	must(t, os.RemoveAll(r.opts.Dir))
	r.restart()
	both := "default/db-node-1=one default/web-node-1=one"
	if m := r.isLost(false, both); len(m.Problems) != 1 || m.Problems[0].Path != r.opts.Dir || !m.Problems[0].KeptLast {
		t.Errorf("problems %+v, want one of %s", m.Problems, r.opts.Dir)
	}
	r.check()
	r.isLost(false, both)
	r.submit(yaml("log", "one"))
	all := "default/db-node-1=one default/log-node-1=one default/web-node-1=one"
	if m := r.isLost(false, all); len(m.Problems) > 0 {
		t.Errorf("problems %+v, want none", m.Problems)
	}
	r.start()
	r.isLost(false, all)
	must(t, os.RemoveAll(r.opts.Dir))
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "log"})), "default/log-node-1 deleted")
	r.start()
	r.isLost(false, both)
}

// A journal of an earlier version has no marker, and is not lost.
func TestLost_EarlierVersion(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	must(t, os.Remove(r.opts.Dir+"/journal"))
	r.start()
	r.isLost(false, "default/web-node-1=one")
}

// A journal stays in force if its file system is unmounted while the agent runs. Nothing is accepted that would be hidden once it
// is mounted again. Another journal that is mounted there gets the submissions that it lacks.
func TestLost_Unmounted(t *testing.T) {
	for name, path := range map[string]string{"the mount point": "", "a folder in it": "submissions"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			mount := func(source string) (place string) {
				place = t.TempDir()
				flags, kind := uintptr(unix.MS_BIND), ""
				if source == "" {
					source, flags, kind = "journal", 0, "tmpfs"
				}
				if err := unix.Mount(source, place, kind, flags, ""); err != nil {
					t.Skip(err)
				}
				t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
				return place
			}
			at := mount("")
			r.opts.Dir = filepath.Join(at, path)
			must(t, os.MkdirAll(r.opts.Dir, 0o700))
			must(t, newJournal(r.opts).mark())
			r.start()
			r.submit(yaml("web", "one"))
			older := mount("")
			must(t, os.CopyFS(older, os.DirFS(at)))
			r.submit(yaml("db", "one"))
			same := mount(at)
			must(t, unix.Unmount(at, unix.MNT_DETACH))
			both := "default/db-node-1=one default/web-node-1=one"
			refused := func() {
				t.Helper()
				r.says(r.submit(yaml("log", "one")), "failure")
				r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "db"})), "failure")
				if m := r.isLost(false, both); len(m.Problems) != 1 || m.Problems[0].Path != r.opts.Dir || !m.Problems[0].KeptLast {
					t.Errorf("problems %+v, want one of %s", m.Problems, r.opts.Dir)
				}
				if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
					t.Errorf("the plain folder has %v (%v), want nothing", left, err)
				}
			}
			refused()
			r.check() // which must not make the plain folder a journal
			refused()
			r.restart()
			refused()
			must(t, unix.Mount(same, at, "", unix.MS_BIND, ""))
			r.says(r.submit(yaml("log", "one")), "default/log-node-1 created")
			all := "default/db-node-1=one default/log-node-1=one default/web-node-1=one"
			if m := r.isLost(false, all); len(m.Problems) > 0 {
				t.Errorf("problems %+v, want none", m.Problems)
			}
			must(t, unix.Unmount(at, unix.MNT_DETACH))
			must(t, unix.Mount(older, at, "", unix.MS_BIND, ""))
			r.says(r.submit(yaml("new", "one")), "default/new-node-1 created")
			for range 2 {
				r.isLost(false, "default/db-node-1=one default/log-node-1=one default/new-node-1=one default/web-node-1=one")
				r.start()
			}
		})
	}
}

// The withdrawal of a pod with a damaged record removes the record, the one that was kept aside, and the problem.
func TestWithdraw_DamagedRecord(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		running bool
	}{
		"kept aside, running": {"half", true}, "kept aside, ended": {"half", false}, "of another pod, ended": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.submit(yaml("web", "one"), yaml("db", "one"))
			web := board.SparedPod{UID: r.uidOf("web"), Name: "default/web-node-1", Source: messages.Submit}
			path := key{"default", "web"}.file(r.opts.Dir)
			text := []byte(c.text)
			if c.text == "" {
				var err error
				text, err = os.ReadFile(key{"default", "db"}.file(r.opts.Dir))
				must(t, err)
			}
			must(t, os.WriteFile(path, text, 0o600))
			r.start()
			var gone []string
			if c.running {
				r.check(web)
				gone = []string{web.UID}
			}
			withdraw := messages.WithdrawPod{Namespace: "default", Name: "web-node-1", DryRun: true}
			r.says(said(r.ask(withdraw)), "default/web-node-1 deleted")
			if m := r.gone("default/db-node-1=one"); len(m.Problems) != 1 || !slices.Equal(m.Unread, []string{path}) {
				t.Errorf("problems %+v, unread %v, want one of %s", m.Problems, m.Unread, path)
			}
			withdraw.DryRun = false
			r.says(said(r.ask(withdraw)), "default/web-node-1 deleted")
			for range 2 {
				if m := r.gone("default/db-node-1=one", gone...); len(m.Problems)+len(m.Unread) > 0 {
					t.Errorf("problems %+v, unread %v, want none", m.Problems, m.Unread)
				}
				r.start()
			}
			if !c.running {
				r.says(said(r.ask(withdraw)), "unknown")
			}
		})
	}
}

// While the file system of a journal is not mounted, nothing is written into the plain folder: not the withdrawal of a pod with a
// damaged record, and not the end of a loss.
func TestLost_UnmountedChangesNothing(t *testing.T) {
	for name, lost := range map[string]bool{"damaged record": false, "lost journal": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			at := t.TempDir()
			if err := unix.Mount("journal", at, "tmpfs", 0, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
			r.opts.Dir = at
			if !lost {
				must(t, newJournal(r.opts).mark())
			}
			r.start()
			r.submit(yaml("web", "one"), yaml("db", "one"))
			web := board.SparedPod{UID: r.uidOf("web"), Name: "default/web-node-1", Source: messages.Submit}
			r.damage("web")
			r.start()
			if r.check(web); lost {
				r.isLost(true, "default/db-node-1=one")
			}
			must(t, unix.Unmount(at, unix.MNT_DETACH))
			withdraw := func() { r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "web"})), "failure") }
			withdraw()
			r.check() // no pod is left alone
			withdraw()
			r.says(r.submit(yaml("log", "one")), "failure")
			if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
				t.Errorf("the plain folder has %v (%v), want nothing", left, err)
			}
		})
	}
}
