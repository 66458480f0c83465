package file

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unreadAs fails the test unless the look named these files as unread, and these pods, by UID, as of an earlier version.
func (b *bench) unreadAs(l looked, files, stale string) {
	b.t.Helper()
	var got []string
	for _, path := range l.unread {
		got = append(got, filepath.Base(path))
	}
	if text := strings.Join(got, " "); text != files || !l.heard {
		b.t.Fatalf("unread %q, want %q", text, files)
	}
	if text := strings.Join(slices.Sorted(maps.Keys(l.stale)), " "); text != stale {
		b.t.Fatalf("of an earlier version %q, want %q", text, stale)
	}
}

// A manifest that cannot be used is named from the first look on, before it is reported as a problem: no pod that runs by it may
// be taken for one that no manifest names.
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

// The version in force of a manifest that cannot be used is an earlier one, before and after a restart.
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

// A folder that cannot be read leaves its manifests unread. One that is not there has none.
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
