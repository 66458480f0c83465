package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// pods replaces the pods actor and forwards its messages to the test.
type pods struct {
	sent chan messages.SourcePodsWanted
}

func (p pods) Receive(_ supervisors.Context, msg any) {
	if m, ok := msg.(messages.SourcePodsWanted); ok {
		p.sent <- m
	}
}

// idle is an actor that only has children.
type idle struct{}

func (idle) Receive(supervisors.Context, any) {}

// grove is a tree with the file source, on the real clock, with a real folder.
type grove struct {
	t    testing.TB
	sys  *supervisors.System
	dir  string
	sent chan messages.SourcePodsWanted
}

func plant(t testing.TB, opts Options, interceptor supervisors.Interceptor) *grove {
	t.Helper()
	root := t.TempDir()
	g := &grove{t: t, dir: filepath.Join(root, "manifests"), sent: make(chan messages.SourcePodsWanted, 1<<12)}
	must(t, os.Mkdir(g.dir, 0o755))
	opts.Path, opts.Node.NodeName, opts.StateDir = g.dir, testNode, filepath.Join(root, "state")
	waiting := supervisors.Strategy{Panics: 1000, Within: time.Minute, Then: supervisors.Escalate}
	sys, err := supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node", Strategy: waiting, Children: []supervisors.Row{
			{Kind: "pods", Strategy: waiting},
			{Kind: "sources", Strategy: waiting, Children: []supervisors.Row{{Kind: "file", Strategy: waiting}}},
		}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{
			"node": func(string) supervisors.Actor { return idle{} }, "sources": func(string) supervisors.Actor { return idle{} },
			"pods": func(string) supervisors.Actor { return pods{g.sent} }, "file": New(opts),
		},
		Interceptor: interceptor,
	})
	must(t, err)
	g.sys = sys
	return g
}

func (g *grove) fell() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	must(g.t, g.sys.Shutdown(ctx))
}

// until waits for a list of exactly these pods.
func (g *grove) until(pods string) messages.SourcePodsWanted {
	g.t.Helper()
	deadline := time.After(5 * time.Minute)
	var last messages.SourcePodsWanted
	for {
		select {
		case last = <-g.sent:
			if names(last.Pods) == pods {
				return last
			}
		case <-deadline:
			g.t.Fatalf("waited for %q; was told last of %q, %v", pods, names(last.Pods), last.Problems)
		}
	}
}

// put writes a file under an ignored name, and renames it into place.
func (g *grove) put(name, text string) {
	g.t.Helper()
	must(g.t, os.WriteFile(filepath.Join(g.dir, ".new"), []byte(text), 0o600))
	must(g.t, os.Rename(filepath.Join(g.dir, ".new"), filepath.Join(g.dir, name)))
}

func TestInATree(t *testing.T) {
	g := plant(t, Options{parse: (&toyParser{}).parse}, nil)
	defer g.fell()
	g.until("")
	g.put("a", "pod a\n")
	g.until("a")
	must(t, os.WriteFile(filepath.Join(g.dir, "b"), []byte("pod b\n"), 0o600))
	g.until("a b")
	g.put("a", "nonsense\n")
	for w := g.until("a b"); len(w.Problems) != 1; w = g.until("a b") {
		continue
	}
	must(t, os.Remove(filepath.Join(g.dir, "a")))
	g.until("b")
	must(t, os.RemoveAll(g.dir))
	g.until("")
	must(t, os.Mkdir(g.dir, 0o755))
	g.put("c", "pod c\n")
	g.until("c")
}

func TestRestartsLeaveNoWatchBehind(t *testing.T) {
	before := inotifies(t)
	g := plant(t, Options{parse: (&toyParser{}).parse}, nil)
	g.until("")
	for i := range 5 { // the restart delay grows
		g.sys.Kill(messages.File, "test")
		text := fmt.Sprint(i)
		g.put("a", "pod a - "+text+"\n")
		g.until("a=" + text)
	}
	if n := inotifies(t) - before; n != 1 {
		t.Errorf("%d watches, want one", n)
	}
	g.fell()
	if n := inotifies(t) - before; n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// once makes the actor panic at the first message of a type, before or after handling it.
type once struct {
	kind   string
	after  bool
	failed chan struct{}
}

func (o *once) Before(d supervisors.Delivery) supervisors.Verdict { return o.at(d, false) }
func (o *once) After(d supervisors.Delivery) supervisors.Verdict  { return o.at(d, true) }

func (o *once) at(d supervisors.Delivery, after bool) supervisors.Verdict {
	if d.Kind != "file" || d.MessageKind() != o.kind || o.after != after {
		return supervisors.Verdict{}
	}
	select { // one mailbox: no concurrent close
	case <-o.failed:
		return supervisors.Verdict{}
	default:
		close(o.failed)
		return supervisors.Verdict{Effect: supervisors.Panic}
	}
}

func TestActorKills_LeavePodsUnchanged(t *testing.T) {
	for _, kind := range []string{"Started", "ResendDesired", "readResult", "checkDue", "lookDue", "saveDue", "checkpointSaved"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", kind, after), func(t *testing.T) {
				o := &once{kind: kind, after: after, failed: make(chan struct{})}
				g := plant(t, Options{parse: (&toyParser{}).parse, CheckFrequency: 50 * time.Millisecond}, o)
				defer g.fell()
				g.put("a", "pod a\n")
				first := g.until("a").Pods[0]
				g.sys.Tell(messages.File, messages.ResendDesired{})
				g.put("a", "nonsense\n")
				g.put("b", "pod b\n")
				w := g.until("a b")
				for len(w.Problems) != 1 {
					w = g.until("a b")
				}
				<-o.failed
				g.until("a b") // at the next check, at the latest
				if w.Pods[0] != first {
					t.Error("the pod that stayed as it was is another")
				}
			})
		}
	}
}

// drops loses lists on their way to the pods actor: the first, and all but every fourth after it.
type drops struct{ met, lost int }

func (d *drops) Before(m supervisors.Delivery) supervisors.Verdict {
	if _, desired := m.Message.(messages.SourcePodsWanted); !desired {
		return supervisors.Verdict{}
	}
	if d.met++; d.met%4 == 0 {
		return supervisors.Verdict{}
	}
	d.lost++
	return supervisors.Verdict{Effect: supervisors.Drop}
}

func (d *drops) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

// Each list is complete and is sent at every check. A lost list has no lasting effect.
func TestAListThatIsLostIsSentAgain(t *testing.T) {
	d := &drops{}
	g := plant(t, Options{parse: (&toyParser{}).parse, CheckFrequency: 20 * time.Millisecond}, d)
	for i := range 10 {
		text := fmt.Sprint(i)
		g.put("a", "pod a - "+text+"\n")
		g.until("a=" + text)
	}
	g.fell()
	if d.lost < 10 {
		t.Errorf("%d lists were lost, of %d", d.lost, d.met)
	}
}

// BenchmarkRenameToMessage measures the time from the rename of a manifest into place to the message to the pods actor.
func BenchmarkRenameToMessage(b *testing.B) {
	g := plant(b, Options{}, nil)
	defer g.fell()
	manifest := func(i int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec:\n  containers: [{name: c, image: i}]\n", i)
	}
	const others = 50
	want := 0
	wait := func() {
		for {
			if w := <-g.sent; len(w.Pods) == want {
				return
			}
		}
	}
	for i := range others {
		want++
		g.put(fmt.Sprintf("%05d", i), manifest(i))
		wait()
	}
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		must(b, os.WriteFile(filepath.Join(g.dir, ".new"), []byte(manifest(others+i)), 0o600))
		b.StartTimer()
		must(b, os.Rename(filepath.Join(g.dir, ".new"), filepath.Join(g.dir, "last")))
		for {
			if w := <-g.sent; len(w.Pods) > others && w.Pods[others].Name == fmt.Sprintf("p%d-%s", others+i, testNode) {
				break
			}
		}
	}
}
