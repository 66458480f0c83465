package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRetain uses manifests with one document per line, in the toy grammar without separators.
func TestRetain(t *testing.T) {
	for name, test := range map[string]struct{ last, now, want, kept string }{
		"by name":                           {"pod a,pod b", "pod a,bad b", "a b", "+"},
		"by full name":                      {"pod a,pod b", "bad default/b-node-1,pod a", "b a", "+"},
		"by name, though it moved":          {"pod a,pod b,pod c", "bad c,pod a", "c a", "+"},
		"by place":                          {"pod a,pod b", "pod a,bad", "a b", "+"},
		"by place, though it was renamed":   {"pod a,pod b", "pod a,bad x", "a b", "+"},
		"by place, beside one renamed":      {"pod a,pod b", "pod x,bad", "x b", "+"},
		"a new one that was never good":     {"pod a", "pod a,bad b", "a", "-"},
		"a nameless new one keeps nothing":  {"pod a", "pod a,bad", "a", "-"},
		"a nameless one among fewer":        {"pod a,pod b,pod c", "pod a,bad", "b c a", "+"},
		"a nameless one in another's place": {"pod a,pod b", "pod b,bad", "b a", "+"},
		"one deleted, one broken":           {"pod a,pod b,pod c", "pod a,bad c", "c a", "+"},
		"all broken":                        {"pod a,pod b", "nonsense", "a b", "+"},
		"two broken":                        {"pod a,pod b,pod c", "bad a,pod b,bad c", "a b c", "++"},
		"two problems of one":               {"pod a,pod b", "pod a,bad b,bad b", "b a", "++"},
		"of another namespace":              {"pod a,pod b", "pod a,pod c,bad other/b", "a c", "-"},
		"the same UID under another name":   {"pod a u1", "pod b u1,bad a", "b", "-"},
		"a good one is taken as it is now":  {"pod a - old,pod b", "pod a - new,bad b", "a=new b", "+"},
		"nothing good before":               {"", "bad a,pod b", "b", "-"},
		"nothing good at all":               {"", "nonsense", "", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(text string) version {
				return (&toyParser{}).parse("f", []byte(strings.ReplaceAll(text, ",", "\n---\n")))
			}
			now := read(test.now)
			got := retain(read(test.last), now)
			var kept string
			for _, p := range got.problems {
				kept += map[bool]string{true: "+", false: "-"}[p.KeptLast]
			}
			if got := names(podsOf(got.documents)); !sameWords(got, test.want) || kept != test.kept {
				t.Fatalf("got %q %s, want %q %s", got, kept, test.want, test.kept)
			}
			if again := retain(got, now); !slices.Equal(podsOf(again.documents), podsOf(got.documents)) {
				t.Fatalf("doing it again gives %v, want %v", again.documents, got.documents)
			}
		})
	}
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// TestManifest_BrokenAndAbsentByTurns checks that a file that alternates between broken and missing is accepted as bad
// in the end. A tool may write an invalid file again and again.
func TestManifest_BrokenAndAbsentByTurns(t *testing.T) {
	m := &entry{version: version{problems: []problem{{}}}}
	now := time.Unix(0, 0)
	for state := fileInvalid; m.confirmed == nil; now = now.Add(waitGone / 3) {
		if now.Sub(time.Unix(0, 0)) > 2*waitAtMost {
			t.Fatal("it is never believed")
		}
		if _, removed := m.apply(outcome{state: state}, now, true); removed {
			t.Fatal("it was never gone for long")
		}
		if state = fileMissing; m.pending != nil && m.pending.state == fileMissing {
			state = fileInvalid
		}
	}
}

// TestALinkInTheMiddleIsWatched checks a link in the middle of the path. Release tools replace such a link.
func TestALinkInTheMiddleIsWatched(t *testing.T) {
	b := newBench(t)
	for release, text := range map[string]string{"1": "pod a - 1\n", "2": "pod a - 2\n"} {
		dir := filepath.Join(b.root, "releases", release)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o600))
	}
	current := filepath.Join(b.root, "current")
	must(t, os.Symlink("releases/1", current))
	must(t, os.Symlink("../current/a", b.path("a")))
	b.wants(b.start(), "a=1")
	must(t, os.Symlink("releases/2", current+"_new"))
	must(t, os.Rename(current+"_new", current))
	if c := b.r.watch.Collect(); c.None() {
		t.Error("nothing was seen")
	}
	b.wants(b.check(), "a=2")
}

// TestAFileThatGoesHasItsOwnTime checks the delay of a missing file, however long it was written before. Its writer may be
// about to create the new one.
func TestAFileThatGoesHasItsOwnTime(t *testing.T) {
	m := &entry{version: version{documents: []document{{}}, count: 1}}
	now := time.Unix(0, 0)
	m.apply(outcome{state: fileBusy}, now, false)
	now = now.Add(2 * waitAtMost)
	if changed, removed := m.apply(outcome{state: fileMissing}, now, true); changed || removed || m.overdue(now) {
		t.Errorf("at once: changed %t, removed %t", changed, removed)
	}
	if _, removed := m.apply(outcome{state: fileMissing}, now.Add(waitGone), false); !removed {
		t.Error("it is never removed")
	}
}
