package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testNode = "node-1"

// toyParser reads documents of one line. "pod NAME [UID] [TEXT]" is a pod, "bad [NAME]" is a problem, as is
// "badname NAME". Any other text ends the
// manifest, as a syntax error does. Each pod gets a new first-seen time.
type toyParser struct{ calls int }

func (p *toyParser) parse(path string, data []byte) (v version) {
	p.calls++
	for i, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "---" || words[0] == "#" {
			continue
		}
		at := v.count
		v.count++
		switch {
		case words[0] == "pod" && len(words) > 1:
			v.documents = append(v.documents, document{p.pod(path, words[1:]), at})
		case words[0] == "bad":
			v.problems = append(v.problems, problem{messages.ManifestProblem{
				Path: path, Line: i + 1, Pod: strings.Join(words[1:], ""), Message: "a bad document",
			}, at})
		case words[0] == "badname":
			v.problems = append(v.problems, problem{messages.ManifestProblem{
				Path: path, Pod: words[1], Field: "metadata.name", Message: "a bad name"}, at})
		case words[0] == "panic":
			panic("met the toy's bug")
		default:
			v.problems = append(v.problems, problem{messages.ManifestProblem{Path: path, Message: "not a manifest: " + line}, at})
			return v
		}
	}
	return v
}

func (p *toyParser) pod(path string, words []string) *v1.Pod {
	sum := sha256.Sum256([]byte(path + strings.Join(words, " ")))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: words[0] + "-" + strings.ToLower(testNode), UID: types.UID(hex.EncodeToString(sum[:8])),
		Annotations: map[string]string{manifest.FirstSeenAnnotation: fmt.Sprint("call ", p.calls)},
	}}
	if len(words) > 1 && words[1] != "-" {
		pod.UID = types.UID(words[1])
	}
	if len(words) > 2 {
		pod.Labels = map[string]string{"text": words[2]}
	}
	pod.Spec.NodeName = testNode
	return pod
}

// bench is a reader of a real folder that looks only on demand. The kernel queues an event before the causing call returns. A
// look therefore sees all earlier actions of a test.
type bench struct {
	t      testing.TB
	root   string // contains the manifest folder and all other files
	dir    string // the manifest folder
	state  string
	clock  *clocktesting.FakeClock
	parser *toyParser
	parse  parser // the toy's, unless a test sets another
	r      *reader
	saved  *lastGood
	last   readResult
	board  *board.Board
	// cluster is whether the node has an API server.
	cluster bool
	// between are the desired pods while recreated manifests were left out.
	between []*v1.Pod
}

func newBench(t testing.TB) *bench {
	t.Helper()
	root := t.TempDir()
	b := &bench{t: t, root: root, dir: filepath.Join(root, "manifests"), state: filepath.Join(root, "state"),
		parser: &toyParser{}, board: board.New()}
	b.parse = b.parser.parse
	b.clock = clocktesting.NewFakeClock(time.Now())
	must(t, os.Mkdir(b.dir, 0o755))
	return b
}

// start makes the first reading with a new reader, as a restart of the actor does.
func (b *bench) start() readResult {
	b.t.Helper()
	if b.r != nil {
		b.r.watch.Close()
	}
	b.r = newReader(Options{Path: b.dir, Node: base.Node{NodeName: testNode, Cluster: b.cluster}, StateDir: b.state, parse: b.parse, Clock: b.clock, Board: b.board},
		new(memory))
	b.t.Cleanup(b.r.watch.Close)
	if err := b.r.watch.Open(); err != nil {
		b.t.Fatalf("the test needs inotify, whose instances other processes may have used up: %v", err)
	}
	b.last = b.keep(b.r.next(context.Background()))
	return b.last
}

// look processes the changes so far.
func (b *bench) look() readResult {
	b.last, b.between = b.keep(b.r.look(b.r.watch.Collect())), nil
	if b.r.release() {
		b.between = b.last.pods
		b.last = b.keep(b.r.report(b.clock.Now(), b.last.checked))
	}
	return b.last
}

// wait advances the clock, and then looks.
func (b *bench) wait(d time.Duration) readResult {
	b.clock.Step(d)
	b.r.watch.Wake(true)
	return b.look()
}

// check looks as at the regular check.
func (b *bench) check() readResult {
	b.r.watch.Wake(false)
	return b.look()
}

// over publishes that no pod runs, and advances the clock to the regular check.
func (b *bench) over() readResult {
	b.board.Publish(board.Snapshot{Audited: true})
	b.clock.Step(time.Hour)
	return b.check()
}

func (b *bench) keep(l readResult) readResult {
	if l.good != nil {
		b.saved = l.good
	}
	return l
}

// save writes the reader's last checkpoint.
func (b *bench) save() {
	b.t.Helper()
	if b.saved != nil {
		must(b.t, base.Save(b.state, b.saved))
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(b.path(name), []byte(text), 0o600))
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	must(b.t, os.Rename(b.path(from), b.path(to)))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	must(b.t, os.Remove(b.path(name)))
}

// wants fails the test unless the look returned exactly these pods and problems. Pods are in order, by name without the
// node's. Each problem contains its text.
func (b *bench) wants(l readResult, pods string, problems ...string) {
	b.t.Helper()
	if !l.podsKnown {
		b.t.Fatalf("nothing was heard; problems: %v", l.problems)
	}
	if got := names(l.pods); got != pods {
		b.t.Fatalf("pods %q, want %q; problems: %v", got, pods, l.problems)
	}
	b.complains(l, problems...)
}

func (b *bench) complains(l readResult, problems ...string) {
	b.t.Helper()
	if len(l.problems) != len(problems) {
		b.t.Fatalf("problems %v, want %d: %v", l.problems, len(problems), problems)
	}
	for i, p := range l.problems {
		if text := fmt.Sprintf("%s:%d %s %s kept=%v", filepath.Base(p.Path), p.Line, p.Pod, p.Message,
			p.KeptLast); !strings.Contains(text, problems[i]) {
			b.t.Fatalf("problem %q, want %q", text, problems[i])
		}
	}
}

func names(pods []*v1.Pod) string {
	var out []string
	for _, p := range pods {
		name := strings.TrimSuffix(p.Name, "-"+testNode)
		if text := p.Labels["text"]; text != "" {
			name += "=" + text
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inotifies counts the inotify instances of this process.
func inotifies(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, "inotify") {
			n++
		}
	}
	return n
}

func samePods(a, b []*v1.Pod) bool { return slices.Equal(a, b) }

// seenOf returns the first-seen time of the first pod.
func seenOf(l readResult) string { return l.pods[0].Annotations[manifest.FirstSeenAnnotation] }
