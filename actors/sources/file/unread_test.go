package file

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// unreadAs fails the test unless the look has these unread files, and these pods, by UID, as of an earlier version.
func (b *bench) unreadAs(l readResult, files, stale string) {
	b.t.Helper()
	var got []string
	for _, path := range l.unread {
		got = append(got, filepath.Base(path))
	}
	if text := strings.Join(got, " "); text != files || !l.podsKnown {
		b.t.Fatalf("unread %q, want %q", text, files)
	}
	if text := strings.Join(slices.Sorted(maps.Keys(l.stale)), " "); text != stale {
		b.t.Fatalf("of an earlier version %q, want %q", text, stale)
	}
}

// An unusable manifest is listed from the first look on, before it is reported as a problem. A pod that runs by it must not
// count as one without a manifest.
func TestUnread_FromTheFirstLook(t *testing.T) {
	for name, prepare := range map[string]func(b *bench){
		"no manifest":   func(b *bench) { b.write("a", "nonsense") },
		"a bad pod":     func(b *bench) { b.write("a", "bad web") },
		"empty":         func(b *bench) { b.write("a", " \n") },
		"a broken link": func(b *bench) { must(b.t, os.Symlink("nowhere", b.path("a"))) },
		"a panic":       func(b *bench) { b.write("a", "panic") },
		"too large":     func(b *bench) { must(b.t, os.WriteFile(b.path("a"), make([]byte, 11<<20), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			prepare(b)
			b.write("b", "pod b ub\n")
			b.unreadAs(b.start(), "a", "")
			b.unreadAs(b.wait(waitBroken), "a", "")
			b.remove("a")
			b.look()
			b.unreadAs(b.wait(waitGone), "", "")
		})
	}
}

// The version in force of an unusable manifest is an earlier one, before and after a restart.
func TestUnread_EarlierVersions(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a ua\n")
	b.write("b", "pod b ub\n")
	b.unreadAs(b.start(), "", "")
	b.save()
	b.write("a", "bad a")
	b.look()
	b.unreadAs(b.wait(waitBroken), "a", "ua")
	b.unreadAs(b.start(), "a", "ua")
	b.wants(b.wait(waitBroken), "a b", "kept=true")
	b.unreadAs(b.last, "a", "ua")
	b.write("a", "pod a ua new\n")
	b.unreadAs(b.look(), "", "")
}

// An unreadable folder leaves its manifests unread. A missing one has none.
func TestUnread_Folder(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a ua\n")
	b.start()
	b.save()
	must(t, os.RemoveAll(b.dir))
	must(t, os.Symlink("manifests", b.dir)) // leads to itself
	b.start()
	b.unreadAs(b.wait(waitBroken), "manifests", "ua")
	must(t, os.Remove(b.dir))
	b.look()
	b.unreadAs(b.wait(waitPlace), "", "")
}

// The names of an unread manifest are reported once they are all known, so that a running pod of another name can end.
func TestUnread_Names(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a bad pod":              {"bad default/a-node-1", "[default/a]"},
		"a good one beside it":   {"pod b ub\nbad default/a-node-1", "[default/a default/b]"},
		"a pod without a name":   {"bad", ""},
		"beside one with a name": {"bad default/a-node-1\nbad", ""},
		"a syntax error":         {"nonsense", ""},
		"empty":                  {" \n", ""},
		"a bad name":             {"badname default/a-node-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("a", c.text)
			if l := b.start(); len(l.names) > 0 {
				t.Errorf("before it is accepted: %v", l.names)
			}
			b.wait(waitBroken)
			got := ""
			if names, known := b.last.names[b.path("a")]; known {
				got = fmt.Sprint(names)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A manifest without a pod in force keeps its earlier name and gets the name in its present text.
func TestUnread_NamesOfPodsInForce(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a ua\n")
	b.start()
	b.write("a", "bad default/b-node-1")
	b.look()
	b.wait(waitBroken)
	if got := fmt.Sprint(b.last.names[b.path("a")]); got != "[default/a default/b]" {
		t.Errorf("got %s", got)
	}
}

// goneAs fails the test unless the look has these pods, by UID, as gone from their manifests.
func (b *bench) goneAs(l readResult, want string) {
	b.t.Helper()
	if text := strings.Join(slices.Sorted(maps.Keys(l.gone)), " "); text != want {
		b.t.Fatalf("gone %q, want %q", text, want)
	}
}

// A pod without a manifest is reported as gone until it has ended, also after restarts.
func TestUnread_Gone(t *testing.T) {
	for name, leave := range map[string]func(b *bench){
		"while the agent runs": func(b *bench) {
			b.remove("b")
			b.goneAs(b.look(), "") // it may come back
			b.goneAs(b.wait(waitGone), "ub")
			b.save()
		},
		"while the agent is down": func(b *bench) {
			b.remove("b")
			b.goneAs(b.start(), "ub")
			b.save()
		},
		"replaced by another version": func(b *bench) {
			b.write("b", "pod other uo\n")
			b.goneAs(b.look(), "ub")
			b.save()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("b", "pod b ub\n")
			b.write("c", "bad c")
			b.start()
			b.goneAs(b.wait(waitBroken), "")
			b.save()
			leave(b)
			b.goneAs(b.start(), "ub")
			b.goneAs(b.wait(waitBroken), "ub")
			b.goneAs(b.check(), "ub")
			b.write("d", "pod b ub\n")
			b.goneAs(b.look(), "")
			b.remove("d")
			b.look()
			b.goneAs(b.wait(waitGone), "ub")
			b.save()
			b.goneAs(b.start(), "ub")
			b.goneAs(b.over(), "")
			b.save()
			b.goneAs(b.start(), "")
		})
	}
}

// A pod that left while all manifests were readable is reported as gone when the next process finds one damaged.
func TestUnread_GoneBeforeTheDamage(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a ua\n")
	b.write("b", "pod b ub\n")
	b.start()
	b.remove("b")
	b.look()
	b.goneAs(b.wait(waitGone), "ub")
	b.save()
	b.write("a", "bad a")
	b.goneAs(b.start(), "ub")
	b.unreadAs(b.last, "a", "ua")
}

// The reader remembers departed pods when the folder is briefly missing or unreadable.
func TestUnread_GoneBeforeTheFolder(t *testing.T) {
	b := newBench(t)
	b.write("b", "pod b ub\n")
	b.write("a", "pod a ua\n")
	b.write("c", "bad c")
	b.start()
	b.wait(waitBroken)
	b.remove("b")
	b.look()
	b.goneAs(b.wait(waitGone), "ub")
	b.save()
	aside := filepath.Join(b.root, "aside")
	must(t, os.Rename(b.dir, aside))
	if l := b.start(); l.podsKnown {
		t.Fatal("heard, although the folder may be being replaced")
	}
	must(t, os.Symlink("manifests", b.dir)) // leads to itself
	b.goneAs(b.start(), "ub")
	must(t, os.Remove(b.dir))
	must(t, os.Rename(aside, b.dir))
	b.goneAs(b.start(), "ub")
}

// A folder that is unmounted, or mounted over, ends no pod, also after a restart of the agent. A file that is made and removed in
// the new folder does, as does one that is missing after the earlier folder is back.
func TestUnmountedFolder(t *testing.T) {
	for name, path := range map[string]string{"the mount point": "", "a folder in it": "inner", "a link": "link"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			mount := filepath.Join(b.root, "mount")
			must(t, os.Mkdir(mount, 0o755))
			if err := unix.Mount("manifests", mount, "tmpfs", 0, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
			b.dir = filepath.Join(mount, path)
			must(t, os.MkdirAll(b.dir, 0o755))
			if path == "link" {
				b.dir = filepath.Join(b.root, "link")
				must(t, os.Symlink(filepath.Join(mount, "link"), b.dir))
			}
			b.write("a", "pod a ua\n")
			b.write("b", "pod b ub\n")
			b.wants(b.start(), "a b")
			b.save()
			aside := filepath.Join(b.root, "aside")
			must(t, os.Mkdir(aside, 0o755))
			must(t, unix.Mount(mount, aside, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = unix.Unmount(aside, unix.MNT_DETACH) })
			must(t, unix.Unmount(mount, unix.MNT_DETACH))
			kept := func(l readResult) {
				t.Helper()
				if len(l.problems) != 1 || len(l.unread) != 1 || names(l.pods) != "a b" || len(l.gone) > 0 {
					t.Fatalf("got pods %q, gone %v, unread %v, problems %v", names(l.pods), l.gone, l.unread, l.problems)
				}
			}
			b.check()
			for range 3 {
				b.last = b.wait(waitPlace)
				kept(b.last)
			}
			b.start()
			kept(b.wait(waitPlace))
			saved := *b.saved
			b.saved.Boot = "another"
			b.save()
			b.start()
			b.wants(b.wait(waitPlace), "", b.missing(path)...) // the numbers of devices mean nothing
			b.saved = &saved
			b.save()
			b.start()
			must(t, unix.Mount(aside, mount, "", unix.MS_BIND, ""))
			b.wants(b.check(), "a b")
			b.remove("b")
			b.look()
			b.wants(b.wait(waitGone), "a")
			b.save()
			must(t, unix.Unmount(mount, unix.MNT_DETACH))
			must(t, os.MkdirAll(filepath.Join(mount, path), 0o755))
			b.check()
			b.wants(b.wait(waitPlace), "a", "another file system is mounted there than before, without a: ")
			b.write("a", "nonsense")
			b.check()
			b.wants(b.wait(waitBroken), "a", " kept=true")
			b.remove("a")
			b.check()
			b.wants(b.wait(waitGone), "")
		})
	}
}

// missing returns the problem of a folder that does not exist.
func (b *bench) missing(path string) []string {
	switch path {
	case "":
		return nil
	case "link":
		return []string{"it is a link that leads to nothing; it is read as soon as it does kept=false"}
	}
	return []string{"there is no such file or folder"}
}

// A link in place of the folder that leads to nothing ends no pod, and no pod that an earlier agent started.
func TestLinkToNoFolder(t *testing.T) {
	b := newBench(t)
	b.write("a", "pod a ua\n")
	b.start()
	must(t, os.Rename(b.dir, b.dir+".away"))
	must(t, os.Symlink("nowhere", b.dir))
	b.look()
	for range 2 {
		b.wants(b.wait(waitPlace), "a", "it is a link that leads to nothing kept=true")
	}
	b.start() // without a checkpoint
	b.wants(b.last, "", "it is a link that leads to nothing; it is read as soon as it does kept=false")
	b.unreadAs(b.last, "manifests", "")
	must(t, os.Remove(b.dir))
	must(t, os.Symlink("manifests.away", b.dir))
	b.wants(b.check(), "a")
}

// A path that is removed from its folder, which stays, removes its pods, even if it led to another device.
func TestRemovedPath(t *testing.T) {
	for name, link := range map[string]bool{"a link": true, "a mount point": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			mount := filepath.Join(b.root, "mount")
			must(t, os.Mkdir(mount, 0o755))
			if err := unix.Mount("manifests", mount, "tmpfs", 0, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
			b.dir = mount
			if link {
				b.dir = filepath.Join(b.root, "link")
				must(t, os.Symlink(mount, b.dir))
			}
			b.write("a", "pod a ua\n")
			b.wants(b.start(), "a")
			if !link {
				must(t, unix.Unmount(mount, unix.MNT_DETACH))
			}
			must(t, os.Remove(b.dir))
			b.check()
			if got := b.wait(waitPlace); len(got.pods) > 0 || len(got.problems) != 1 {
				t.Errorf("got pods %q and problems %v, want no pods", names(got.pods), got.problems)
			}
		})
	}
}
