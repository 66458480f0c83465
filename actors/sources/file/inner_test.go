package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

func TestTraceFollowsAsTheKernelDoes(t *testing.T) {
	root := t.TempDir()
	at := func(p string) string { return filepath.Join(root, p) }
	must(t, os.MkdirAll(at("a/b/c"), 0o755))
	must(t, os.WriteFile(at("a/f"), nil, 0o600))
	for link, target := range map[string]string{
		"abs": at("a"), "rel": "a/b", "a/up": "../a/./b", "chain": "rel/c", "self": "self", "gone": "a/nothing", "dots": "a/b/..",
		"root": "/", "through": "a/f/x",
	} {
		must(t, os.Symlink(target, at(link)))
	}
	for path, want := range map[string]struct {
		real string
		err  error
	}{
		"a/b": {real: "a/b"}, "abs/b": {real: "a/b"}, "rel": {real: "a/b"}, "a/up/c": {real: "a/b/c"}, "chain": {real: "a/b/c"},
		"dots/f": {real: "a/f"}, "a/../abs/f": {real: "a/f"}, "self": {err: syscall.ELOOP}, "self/x": {err: syscall.ELOOP},
		"gone": {err: fs.ErrNotExist}, "a/x/y": {err: fs.ErrNotExist}, "through": {err: syscall.ENOTDIR},
		"chain/..": {real: "a/b"},
	} {
		t.Run(path, func(t *testing.T) {
			watched := map[string]bool{}
			// Joined by hand, since filepath.Join resolves dots.
			real, info, err := trace(root+"/"+path, func(dir, name string) { watched[filepath.Join(dir, name)] = true })
			if !errorsMatch(err, want.err) {
				t.Fatalf("got %v, want %v", err, want.err)
			}
			if err != nil {
				return
			}
			stat, err := os.Stat(root + "/" + path)
			must(t, err)
			if real != at(want.real) || !os.SameFile(stat, info) {
				t.Fatalf("leads to %s, want %s", real, want.real)
			}
			if !watched[root] || (!watched[real] && !strings.Contains(path, "..") && path != "dots/f") {
				t.Fatalf("%s is not among the names to be watched: %v", real, watched)
			}
		})
	}
}

func errorsMatch(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return got != nil && errors.Is(got, want)
}

func TestShapeOf(t *testing.T) {
	for data, want := range map[string]shape{
		"":                                 nil,
		"# nothing\n---\n  \n":             nil,
		"a: b":                             {1},
		"---\na: b\n":                      {1},
		"a\n---\nb\n---  # c\nc\n":         {1, 2, 4},
		"a\n---\n# empty\n---\nb\n...\n":   {1, 4},
		"a\n...\nb\n":                      {1, 2},
		"%YAML 1.2\n---\na\n---\n\n---\nb": {2, 6},
		"--- {a: b}\n--- \r\nb\r\n":        {1, 2},
		"a: |\n ---\n----\nb\n":            {1},
		"{\n\"a\": 1\n}\n":                 {1},
		"kind: PodList\n":                  nil,
	} {
		if got := shapeOf([]byte(data)); !slices.Equal(got, want) {
			t.Errorf("%q has documents at %v, want %v", data, got, want)
		}
	}
	s := shape{1, 4, 9}
	for line, want := range map[int]int{0: -1, 1: 0, 3: 0, 4: 1, 8: 1, 9: 2, 100: 2} {
		if got := s.at(line); got != want {
			t.Errorf("line %d is in document %d, want %d", line, got, want)
		}
	}
	if got := (shape)(nil).at(3); got != -1 {
		t.Errorf("without a shape, line 3 is in document %d", got)
	}
}

// TestRetain has manifests in which one line is one document, by the toy's grammar, but for the marks between them.
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
				data := []byte(strings.ReplaceAll(text, ",", "\n---\n"))
				pods, problems := (&toyParser{}).parse("f", data)
				return assemble(pods, problems, shapeOf(data))
			}
			last, now := read(test.last), read(test.now)
			documents, _, problems := retain(last.documents, last.shape, now)
			var pods []*v1.Pod
			for _, d := range documents {
				pods = append(pods, d.Pod)
			}
			var kept string
			for _, p := range problems {
				kept += map[bool]string{true: "+", false: "-"}[p.KeptLast]
			}
			if got := names(pods); !sameWords(got, test.want) || kept != test.kept {
				t.Fatalf("got %q %s, want %q %s", got, kept, test.want, test.kept)
			}
			again, _, _ := retain(documents, now.shape, now)
			if !slices.EqualFunc(again, documents, func(a, b document) bool { return a.Pod == b.Pod }) {
				t.Fatalf("doing it again gives %v, want %v", again, documents)
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

func TestAssembleKnowsThePlacesOnlyIfTheyAddUp(t *testing.T) {
	pod := func(name string) *v1.Pod { return (&toyParser{}).pod("f", []string{name}) }
	at := func(lines ...int) (out []messages.ManifestProblem) {
		for _, l := range lines {
			out = append(out, messages.ManifestProblem{Line: l})
		}
		return out
	}
	for _, test := range []struct {
		pods     int
		problems []messages.ManifestProblem
		shape    shape
		want     string
	}{
		{2, nil, shape{1, 3}, "0 1"},
		{2, at(4, 5), shape{1, 3, 6}, "0 2"},
		{1, at(1, 7), shape{1, 3, 6}, "1"},
		{3, nil, shape{1, 3}, "-1 -1 -1"},
		{2, nil, nil, "-1 -1"},
		{1, at(0), shape{1, 3}, "-1"},
	} {
		var pods []*v1.Pod
		for i := range test.pods {
			pods = append(pods, pod(fmt.Sprint("p", i)))
		}
		var got []string
		for _, d := range assemble(pods, test.problems, test.shape).documents {
			got = append(got, fmt.Sprint(d.Index))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%d pods, problems %v, documents at %v: places %v, want %s", test.pods, test.problems, test.shape, got,
				test.want)
		}
	}
}
