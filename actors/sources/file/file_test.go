package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// borrowedClock is the kit's clock, which does not exist yet when the actor is created.
type borrowedClock struct{ *clocktesting.FakeClock }

// play is the actor in the kit, with a real folder.
type play struct {
	*supervisortest.Kit
	t     *testing.T
	dir   string
	state string
	actor *source

	clock       *borrowedClock
	constructor supervisors.Constructor
}

func newPlay(t *testing.T, files map[string]string) *play {
	t.Helper()
	root := t.TempDir()
	p := &play{t: t, dir: filepath.Join(root, "manifests"), state: filepath.Join(root, "state")}
	must(t, os.Mkdir(p.dir, 0o755))
	for name, text := range files {
		p.write(name, text)
	}
	p.start()
	return p
}

// start starts a new process: only the disk remains.
func (p *play) start() {
	p.t.Helper()
	p.clock = &borrowedClock{}
	p.constructor = New(Options{
		Path: p.dir, StateDir: p.state, Node: base.Node{NodeName: testNode}, parse: (&toyParser{}).parse, Clock: p.clock,
	})
	p.restart()
}

// restart restarts the actor alone.
func (p *play) restart() {
	p.t.Helper()
	a := p.constructor("file")
	p.actor = a.(*source)
	p.Kit = supervisortest.New(p.t, messages.File, a)
	p.clock.FakeClock = p.Clock
	p.t.Cleanup(p.End)
}

func (p *play) write(name, text string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

// take removes the one work of that name.
func (p *play) take(name string) supervisors.Work {
	p.t.Helper()
	i := slices.IndexFunc(p.Work, func(w supervisors.Work) bool { return w.Name == name })
	if i < 0 {
		p.t.Fatalf("no work %s to be done", name)
	}
	w := p.Work[i]
	p.Work = slices.Delete(p.Work, i, i+1)
	if slices.ContainsFunc(p.Work, func(w supervisors.Work) bool { return w.Name == name }) {
		p.t.Fatalf("work %s is to be done twice at once", name)
	}
	return w
}

func (p *play) read() { p.t.Helper(); p.RunOne(p.take("ReadManifests")) }

// sent returns the one list sent since the last call, or nil.
func (p *play) sent() *messages.SourcePodsWanted {
	p.t.Helper()
	sent := p.Take()
	if len(sent) == 0 {
		return nil
	}
	desired, ok := sent[0].Msg.(messages.SourcePodsWanted)
	if len(sent) > 1 || !ok || sent[0].To != messages.Pods || desired.Source != messages.File {
		p.t.Fatalf("told %+v", sent)
	}
	return &desired
}

func (p *play) wants(pods string, problems int) {
	p.t.Helper()
	w := p.sent()
	if w == nil {
		p.t.Fatal("nothing was told")
	}
	if names(w.Pods) != pods || len(w.Problems) != problems {
		p.t.Fatalf("wants %q, want %q; problems %v, want %d", names(w.Pods), pods, w.Problems, problems)
	}
}

func (p *play) silent() {
	p.t.Helper()
	if w := p.sent(); w != nil {
		p.t.Fatalf("told %+v", *w)
	}
}

func TestPods_SentWhenReadAndOnRequest(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.Send(messages.Sources, messages.ResendDesired{})
	p.silent() // nothing is known yet
	p.read()
	p.wants("a", 0)
	p.Send(messages.Sources, messages.ResendDesired{})
	p.wants("a", 0)
	p.write("b", "pod b\n")
	p.read()
	p.wants("a b", 0)
}

func TestAnEmptyFolderIsHeardToo(t *testing.T) {
	p := newPlay(t, nil)
	p.read()
	p.wants("", 0)
	must(t, os.Remove(p.dir))
	p.start()
	p.read()
	p.wants("", 1)
}

func TestWhatIsNotKnownIsNotReported(t *testing.T) {
	p := newPlay(t, nil)
	must(t, os.Remove(p.dir))
	must(t, os.Symlink("manifests", p.dir))
	p.start()
	p.read()
	p.silent()
	if in := p.actor.Inspect().(Inspection); in.Heard || len(in.Problems) != 1 {
		t.Fatalf("says of itself %+v", in)
	}
	p.Advance(defaultCheckFrequency)
	p.read()
	p.Send(messages.Sources, messages.ResendDesired{})
	p.silent()
}

func TestEveryCheckSendsThePods(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.read()
	p.wants("a", 0)
	for range 3 {
		p.Advance(defaultCheckFrequency)
		p.silent()
		p.read()
		p.wants("a", 0)
	}
}

func TestTheTimeoutIsATimer(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.read()
	p.wants("a", 0)
	p.write("a", "nonsense\n")
	p.read()
	p.silent()
	p.Advance(waitBroken)
	p.read()
	p.wants("a", 1)
	if in := p.actor.Inspect().(Inspection); !slices.Equal(in.Pods, []string{"default/a-node-1"}) || len(in.Problems) != 1 ||
		in.Files != 1 {
		t.Fatalf("says of itself %+v", in)
	}
}

func TestWhatIsGoodIsSavedAfterABurst(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.read()
	p.write("b", "pod b\n")
	p.read()
	if len(p.Work) != 1 {
		t.Fatalf("got %d pieces of work, want ReadManifests alone", len(p.Work))
	}
	p.Advance(base.SaveDelay)
	p.write("c", "pod c\n") // while it is being saved
	p.read()
	p.RunOne(p.take("SaveLastGood"))
	saved := func() string {
		g, err := load(p.state, p.dir, testNode)
		must(t, err)
		var out []string
		for _, m := range g.Manifests {
			out = append(out, filepath.Base(m.Path))
		}
		return strings.Join(out, " ")
	}
	if got := saved(); got != "a b" {
		t.Fatalf("saved %q", got)
	}
	p.Advance(base.SaveDelay)
	p.RunOne(p.take("SaveLastGood"))
	if got := saved(); got != "a b c" {
		t.Fatalf("saved %q", got)
	}
	p.Advance(time.Minute)
	if len(p.Work) != 1 {
		t.Fatalf("got %d pieces of work, want ReadManifests alone", len(p.Work))
	}
	p.Take()
	p.write("a", "nonsense\n")
	p.start()
	p.read()
	p.wants("a b c", 0)
}

func TestSave_IsRetriedAtTheCheck(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	must(t, os.WriteFile(p.state, nil, 0o600)) // blocks the folder
	p.read()
	p.Advance(base.SaveDelay)
	p.RunOne(p.take("SaveLastGood"))
	p.Advance(base.SaveDelay)
	if len(p.Work) != 1 {
		t.Fatal("tried again at once")
	}
	must(t, os.Remove(p.state))
	p.Advance(defaultCheckFrequency)
	p.RunOne(p.take("SaveLastGood"))
	if _, err := os.Stat(base.Path(p.state)); err != nil {
		t.Fatal(err)
	}
}

func TestHangingFileSystem_IsReported(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.read()
	p.wants("a", 0)
	p.Advance(defaultCheckFrequency) // while the worker is blocked
	p.silent()
	p.Advance(defaultCheckFrequency)
	w := p.sent()
	if w == nil || names(w.Pods) != "a" || len(w.Problems) != 1 || !strings.Contains(w.Problems[0].Message, "does not answer") {
		t.Fatalf("told %+v", w)
	}
	p.read()
	p.wants("a", 0)
}

func TestARestartBeforeTheSaveLosesNothing(t *testing.T) {
	p := newPlay(t, map[string]string{"a": "pod a\n"})
	p.read()
	before := p.sent()
	p.write("a", "nonsense\n")
	again := New(Options{}) // another constructor shares no memory
	if again("file").(*source).memory.Load() != nil {
		t.Fatal("constructors share their memory")
	}
	p.restart()
	p.read()
	if now := p.sent(); !samePods(now.Pods, before.Pods) {
		t.Fatalf("wants %v, before %v", names(now.Pods), names(before.Pods))
	}
	p.Advance(base.SaveDelay)
	p.RunOne(p.take("SaveLastGood"))
}

func TestDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	a := New(Options{Path: "./manifests/", Node: base.Node{NodeName: testNode}})("file").(*source)
	wd, err := os.Getwd()
	must(t, err)
	if a.opts.Path != filepath.Join(wd, "manifests") || a.opts.CheckFrequency != 20*time.Second || a.opts.Clock == nil ||
		a.opts.parse == nil {
		t.Fatalf("has %+v", a.opts)
	}
}

func TestManifestsAsUsersWriteThem(t *testing.T) {
	b := newBench(t)
	const doc = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec:\n  containers: [{name: c, image: REF}]\n"
	pod := func(name, image string) string { return strings.NewReplacer("NAME", name, "REF", image).Replace(doc) }
	b.parse = manifestParser(base.Node{NodeName: testNode}, b.clock)
	b.start()
	b.write("two.yaml", pod("a", "one")+"---\n"+pod("b", "one"))
	b.write("c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	first := b.look()
	b.wants(first, "c a b")
	b.write("two.yaml", pod("a", "two")+"---\n"+strings.Replace(pod("b", "two"), "image: two", "image: 2", 1))
	b.look()
	b.wants(b.wait(waitBroken), "c a b", "two.yaml:11 default/b-node-1")
	if got := b.last; got.pods[1].Spec.Containers[0].Image != "two" || got.pods[2] != first.pods[2] {
		t.Fatal("want the new version of what is good, and the last good one of what is not")
	}
	b.write("two.yaml", pod("a", "two")+"---\n"+strings.Replace(pod("b", "two"), "image", "tyt: true, image", 1))
	if b.wants(b.look(), "c a b", "two.yaml:11 default/b-node-1 is not a field"); !b.last.problems[0].Warning {
		t.Fatal("a misspelt field is no warning")
	}
	b.write("two.yaml", pod("a", "two")+"---\n  "+pod("b", "two")) // invalid YAML
	b.look()
	b.wants(b.wait(waitBroken), "c a b", "two.yaml:8  ")
	b.save()
	b.start()
	b.wants(b.wait(waitAtMost), "c a b", "two.yaml:")
}
