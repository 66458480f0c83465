package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hidden = "hunter2"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// folder is a folder of objects with its reader.
type folder struct {
	t   testing.TB
	dir string
	m   *memory
	w   *dirwatch.Watch
}

func newFolder(t testing.TB) *folder {
	f := &folder{t: t, dir: filepath.Join(t.TempDir(), "objects")}
	f.m = newMemory(f.dir)
	must(t, os.Mkdir(f.dir, 0o700))
	f.w = dirwatch.New()
	t.Cleanup(f.w.Close)
	return f
}

// write writes a file that was left alone for a while; each one is younger than the one before.
func (f *folder) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	hidden := filepath.Join(f.dir, "."+name) // nothing looks at it
	must(f.t, os.WriteFile(hidden, []byte(text), 0o600))
	then := time.Now().Add(-time.Hour)
	must(f.t, os.Chtimes(hidden, then, then))
	must(f.t, os.Rename(hidden, path))
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: \"%s\"}\n", name, value)
}

// inNamespace is a static pod.
func inNamespace(namespace string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
}

func secret(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: other}\nstringData: {key: %s}\n", name,
		hidden)
}

// has formats the result of a reading: "namespace/name=value" for ConfigMaps, and names for Secrets.
func has(r result) string {
	var out []string
	for k, o := range r.set.ConfigMaps {
		out = append(out, k.Namespace+"/"+k.Name+"="+o.Data["key"])
	}
	for k, o := range r.set.Secrets {
		out = append(out, k.Namespace+"/"+k.Name+" holds "+fmt.Sprint(len(o.Data["key"])))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestAFolderFromDayToDay(t *testing.T) {
	f := newFolder(t)
	look := func(want string, problems ...string) result {
		t.Helper()
		r := f.m.read(f.w)
		if got := has(r); got != want {
			t.Errorf("has %q, want %q", got, want)
		}
		text, err := json.Marshal(r.problems)
		must(t, err)
		if len(r.problems) != len(problems) {
			t.Errorf("problems %s, want %q", text, problems)
		}
		for _, p := range problems {
			if !strings.Contains(string(text), p) {
				t.Errorf("problems %s lack %q", text, p)
			}
		}
		if strings.Contains(string(text), hidden) {
			t.Errorf("problems tell a secret: %s", text)
		}
		return r
	}
	look("")
	f.write("a.yaml", configMap("one", "1")+"---\n"+secret("s"))
	f.write("b.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two","namespace":"x"},"data":{"key":"2"}}`)
	f.write(".ignored.yaml", "no: sense")
	must(t, os.Mkdir(filepath.Join(f.dir, "folder"), 0o700))
	look("default/one=1, other/s holds 7, x/two=2")
	f.write("a.yaml", configMap("one", "9")+"---\n"+strings.Replace(secret("s"), "stringData", "nonsense", 1))
	look("default/one=9, other/s holds 7, x/two=2", "nonsense") // one bad document hides no good one, old or new
	f.write("d.yaml", "kind: [\n---\n"+configMap("four", "4"))
	look("default/four=4, default/one=9, other/s holds 7, x/two=2", "nonsense", "neither YAML nor JSON")
	must(t, os.Remove(filepath.Join(f.dir, "d.yaml")))
	f.write("a.yaml", configMap("one", "11")) // the Secret is gone on purpose
	look("default/one=11, x/two=2")
	f.write("c.yaml", configMap("one", "other")+"---\n"+configMap("three", "3"))
	look("default/one=11, default/three=3, x/two=2", "ConfigMap default/one is in "+filepath.Join(f.dir, "a.yaml"))
	must(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	look("default/one=other, default/three=3, x/two=2")
	must(t, os.RemoveAll(f.dir))
	look("default/one=other, default/three=3, x/two=2", "cannot be read")
	must(t, os.Mkdir(f.dir, 0o700))
	look("")
}

// A file that was cut off, a link to a file system that is not mounted, and a folder that is unmounted or mounted over remove no
// objects.
func TestObjects_Unmounted(t *testing.T) {
	f := newFolder(t)
	look := func(want, problem string) {
		t.Helper()
		r := f.m.read(f.w)
		if got := has(r); got != want || (problem == "") != (len(r.problems) == 0) || !strings.Contains(fmt.Sprint(r.problems), problem) {
			t.Errorf("has %q, want %q; problems %v, want %q", got, want, r.problems, problem)
		}
	}
	aside := filepath.Join(t.TempDir(), "c.yaml")
	f.write("c.yaml", configMap("c", "3"))
	must(t, os.Rename(filepath.Join(f.dir, "c.yaml"), aside))
	must(t, os.Symlink(aside, filepath.Join(f.dir, "c.yaml")))
	f.write("a.yaml", configMap("a", "1"))
	look("default/a=1, default/c=3", "")
	f.write("a.yaml", "\n")
	look("default/a=1, default/c=3", "it is empty")
	f.write("a.yaml", configMap("a", "2"))
	must(t, os.Rename(aside, aside+".away"))
	look("default/a=2, default/c=3", "it is a link that leads to nothing")
	must(t, os.Remove(filepath.Join(f.dir, "c.yaml")))
	look("default/a=2", "")
	if err := unix.Mount("objects", f.dir, "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(f.dir, unix.MNT_DETACH) })
	look("default/a=2", "another file system is mounted there")
	f.write("b.yaml", configMap("b", "4"))
	look("default/a=2, default/b=4", "another file system is mounted there")
	must(t, unix.Unmount(f.dir, 0))
	look("default/a=2, default/b=4", "another file system is mounted there")
	f.write("b.yaml", configMap("b", "5"))
	look("default/a=2, default/b=5", "")
	must(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	look("default/b=5", "")
}

// A recently changed file is read only after a pause.
func TestAFileThatIsBeingWritten(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", "1"))
	f.m.read(f.w)
	must(t, os.WriteFile(filepath.Join(f.dir, "a.yaml"), nil, 0o600))
	if r := f.m.read(f.w); has(r) != "default/one=1" || r.again != settle {
		t.Errorf("has %q, again in %s", has(r), r.again)
	}
}

// A file that is open for writing is not read, however old its last change: half of a file may be valid with another meaning.
func TestAWriterIsWaitedFor(t *testing.T) {
	f := newFolder(t)
	began := time.Now()
	f.m.now = func() time.Time { return began }
	path := filepath.Join(f.dir, "a.yaml")
	for _, before := range []string{"", "default/one=1"} {
		w, err := os.Create(path)
		must(t, err)
		_, err = w.WriteString(configMap("one", "2"))
		must(t, err)
		then := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(path, then, then))
		if r := f.m.read(f.w); has(r) != before || r.again != settle {
			t.Errorf("has %q, want %q, again in %s", has(r), before, r.again)
		}
		_, err = w.WriteString("---\n" + configMap("two", "2"))
		must(t, errors.Join(err, w.Close(), os.Chtimes(path, then, then)))
		if r := f.m.read(f.w); has(r) != "default/one=2, default/two=2" || r.again != 0 {
			t.Errorf("has %q, again in %s", has(r), r.again)
		}
		f.write("a.yaml", configMap("one", "1"))
		f.m.read(f.w)
	}
}

// A writer that holds a file open without writing is waited for briefly, also if the clock was set since the file was written.
func TestQuietWriter_IsNotAwaitedForever(t *testing.T) {
	for name, set := range map[string]time.Duration{"right": 0, "set back": -time.Hour, "set forward": time.Hour} {
		f := newFolder(t)
		now := time.Now().Add(set)
		f.m.now = func() time.Time { return now }
		w, err := os.Create(filepath.Join(f.dir, "a.yaml"))
		must(t, err)
		_, err = w.WriteString(configMap("one", "1"))
		must(t, err)
		if r := f.m.read(f.w); has(r) != "" || r.again != settle {
			t.Errorf("clock %s: has %q, again in %s", name, has(r), r.again)
		}
		now = now.Add(wholefile.Quiet)
		if r := f.m.read(f.w); has(r) != "default/one=1" {
			t.Errorf("clock %s: after a while: has %q", name, has(r))
		}
		must(t, w.Close())
	}
}

// A panic over one file affects no other file, and keeps that file's earlier objects. The problem does not contain the file's
// data.
func TestAParserThatPanicsHidesNoGoodFile(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", "1"))
	f.write("b.yaml", configMap("two", "2"))
	f.m.read(f.w)
	for _, p := range []any{hidden, errors.New(hidden)} {
		f.m.parse = func(path string, data []byte) (manifest.Objects, []manifest.Problem) {
			if strings.HasSuffix(path, "b.yaml") {
				panic(p)
			}
			return manifest.LoadObjects(path, data)
		}
		f.write("a.yaml", configMap("one", "3"))
		f.write("b.yaml", secret("s"))
		r := f.m.read(f.w)
		if has(r) != "default/one=3, default/two=2" || len(r.problems) != 1 || !r.problems[0].KeptLast ||
			strings.Contains(fmt.Sprint(r.problems), hidden) {
			t.Errorf("has %q, problems %+v", has(r), r.problems)
		}
	}
}

// A pipe is never opened, because that blocks until a writer opens it.
func TestWhatIsNoFileIsNotOpened(t *testing.T) {
	f := newFolder(t)
	must(t, unix.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600))
	must(t, os.Symlink("pipe", filepath.Join(f.dir, "link")))
	r := f.m.read(f.w)
	if len(r.problems) != 2 || !strings.Contains(r.problems[0].Message+r.problems[1].Message, "named pipe") {
		t.Errorf("problems %+v", r.problems)
	}
}

// TestALinkInTheMiddleIsWatched: --object-dir may lead over a link to a link, and either may be replaced.
func TestALinkInTheMiddleIsWatched(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", "1"))
	root := filepath.Dir(f.dir)
	must(t, os.Symlink("objects", filepath.Join(root, "next")))
	must(t, os.Symlink("next", filepath.Join(root, "current")))
	f.m.dir = filepath.Join(root, "current")
	f.m.read(f.w)
	f.w.Collect()
	must(t, os.Symlink("other", filepath.Join(root, "new")))
	must(t, os.Rename(filepath.Join(root, "new"), filepath.Join(root, "next")))
	if c := f.w.Collect(); c.None() {
		t.Error("nothing was seen")
	}
}

func TestWhoeverCanReadSecretsIsWarnedOf(t *testing.T) {
	f := newFolder(t)
	f.write("public.yaml", configMap("one", "1"))
	f.write("secret.yaml", secret("s"))
	for _, name := range []string{"public.yaml", "secret.yaml"} {
		must(t, os.Chmod(filepath.Join(f.dir, name), 0o644))
	}
	if r := f.m.read(f.w); len(r.warnings) > 0 {
		t.Errorf("the folder is closed: %q", r.warnings)
	}
	must(t, os.Chmod(f.dir, 0o755))
	r := f.m.read(f.w)
	if all := strings.Join(r.warnings, "\n"); len(r.warnings) != 2 || !strings.Contains(all, f.dir+" is") ||
		!strings.Contains(all, "secret.yaml") {
		t.Errorf("got %q", r.warnings)
	}
}

// A folder that does not answer is reported, as its last state may be out of date. The next incarnation waits for the same
// reading, and reports it too.
func TestAReadingThatDoesNotEnd(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", "1"))
	made := New(Options{Dir: f.dir, Board: &Board{}, CheckFrequency: time.Minute})
	for range 2 {
		a := made("objects").(*actor)
		k := supervisortest.New(t, messages.Objects, a)
		defer a.watch.Close()
		hung := func() (out []messages.ManifestProblem) {
			for _, m := range k.Take() {
				if p, ok := m.Msg.(messages.ObjectProblems); ok {
					out = p.Problems
				}
			}
			return out
		}
		work := func(name string) (out supervisors.Work) {
			k.Work = slices.DeleteFunc(k.Work, func(w supervisors.Work) bool {
				if w.Name == name {
					out = w
				}
				return w.Name == name
			})
			return out
		}
		reading := work("ReadObjects")
		for minutes := range 3 { // it does not come back
			if got := hung(); (len(got) == 1) != (minutes > 0) || len(got) == 1 &&
				!strings.Contains(got[0].Message, "reading it does not end, since ") {
				t.Errorf("after %d minutes: %+v", minutes, got)
			}
			k.Advance(time.Minute)
		}
		k.RunOne(reading)
		if got := hung(); len(got) != 0 {
			t.Errorf("when it has ended: %+v", got)
		}
		k.Advance(time.Minute)
		if got := hung(); len(got) != 0 {
			t.Errorf("at the next check, which has just begun: %+v", got)
		}
	}
}

type ignore struct{}

func (ignore) Receive(supervisors.Context, any) {}

type forward struct{ to chan<- any }

func (f forward) Receive(_ supervisors.Context, msg any) {
	switch msg.(type) {
	case messages.ObjectsChanged, messages.ObjectProblems:
		f.to <- msg
	}
}

// The actor in the tree publishes and announces changes; messages never contain the data of objects.
func TestInTheTree(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", "1")+"---\n"+secret("s"))
	sent, problems := make(chan any, 1000), make(chan any, 1000)
	board := &Board{}
	tree := &supervisors.Row{Kind: "node", Children: []supervisors.Row{{Kind: "volumes"}, {Kind: "pods"}, {Kind: "objects"}}}
	sys, err := supervisors.Start(supervisors.Options{Tree: tree, Constructors: map[supervisors.Kind]supervisors.Constructor{
		"node":    func(string) supervisors.Actor { return ignore{} },
		"volumes": func(string) supervisors.Actor { return forward{sent} },
		"pods":    func(string) supervisors.Actor { return forward{problems} },
		"objects": New(Options{Dir: f.dir, Board: board, CheckFrequency: time.Hour}), // inotify alone
	}})
	must(t, err)
	first := (<-sent).(messages.ObjectsChanged).Version
	if o, found, err := board.Secret(inNamespace("other"), "s"); err != nil || !found || string(o.Data["key"]) != hidden {
		t.Errorf("the Secret: %v %v", found, err)
	}
	f.write("a.yaml", configMap("one", "2"))
	for second := first; second <= first; { // a version may be sent more than once
		second = (<-sent).(messages.ObjectsChanged).Version
	}
	if o, _, _ := board.ConfigMap(inNamespace("default"), "one"); o == nil || o.Data["key"] != "2" {
		t.Errorf("got %v", o)
	}
	f.write("b.yaml", strings.Replace(secret("s"), "v1", "v2", 1))
	for {
		p := (<-problems).(messages.ObjectProblems).Problems
		if strings.Contains(fmt.Sprint(p), hidden) {
			t.Errorf("told %v", p)
		}
		if len(p) == 1 && strings.HasSuffix(p[0].Path, "b.yaml") {
			break
		}
	}
	must(t, sys.Shutdown(t.Context()))
}

func TestInspectionNamesNoValues(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", configMap("one", hidden)+"---\n"+secret("s"))
	a := New(Options{Dir: f.dir, Board: &Board{}})("objects").(*actor)
	a.last = f.m.read(f.w)
	text, err := json.Marshal(a.Inspect())
	must(t, err)
	said := string(text) + fmt.Sprintf("%v %+v", a.last, a.last)
	if strings.Contains(said, hidden) || !strings.Contains(said, "default/one") {
		t.Errorf("it said %s", said)
	}
}
