package submit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// rig is the actor with a journal of its own.
type rig struct {
	*testing.T
	opts  Options
	made  supervisors.Constructor
	actor supervisors.Actor
	kit   *supervisortest.Kit
	clock *clocktesting.FakeClock // the journal's
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	r := &rig{T: t, clock: clock, opts: Options{Clock: clock, Dir: filepath.Join(t.TempDir(), "submissions"), Node: base.Node{NodeName: "node-1"},
		Board: board.New()}}
	if err := os.Mkdir(r.opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := newJournal(r.opts).mark(); err != nil { // otherwise the journal is lost until the board is complete
		t.Fatal(err)
	}
	r.start()
	return r
}

// start starts a new process: only the disk remains.
func (r *rig) start() {
	r.made = New(r.opts)
	r.restart()
}

// restart restarts the actor in the same process.
func (r *rig) restart() {
	r.actor = r.made("submit")
	r.kit = supervisortest.New(r, messages.Submit, r.actor)
	r.kit.RunWork()
}

// ask sends a question and returns the answer.
func (r *rig) ask(question any) any {
	r.Helper()
	r.kit.Send(messages.Node, question)
	r.kit.RunWork()
	if len(r.kit.Replies) != 1 {
		r.Fatalf("%T was answered with %v", question, r.kit.Replies)
	}
	answer := r.kit.Replies[0]
	r.kit.Replies = nil
	return answer
}

// submit submits manifests, and returns the answer in a few words.
func (r *rig) submit(manifests ...string) string {
	r.Helper()
	return said(r.ask(messages.SubmitPods{Manifest: []byte(strings.Join(manifests, "---\n")), Replace: true}))
}

func said(answer any) string {
	switch m := answer.(type) {
	case messages.PodsSubmitted:
		var out []string
		for _, p := range m.Pods {
			out = append(out, p.Namespace+"/"+p.PodName+" "+string(p.Change))
		}
		return strings.Join(out, ", ")
	case messages.PodWithdrawn:
		return m.Pod.Namespace + "/" + m.Pod.PodName + " " + string(m.Pod.Change)
	case messages.SubmissionsReported:
		var out []string
		for _, s := range m.Submissions {
			out = append(out, s.Namespace+"/"+s.Name)
		}
		return strings.Join(out, ", ")
	case messages.SubmissionRefused:
		out := string(m.Why)
		for _, p := range m.Problems {
			out += fmt.Sprintf(" %d:%s", p.Line, p.Field)
		}
		return out
	}
	return fmt.Sprint(answer)
}

// wanted returns the actor's current message to the pods actor.
func (r *rig) wanted() (names string, desired messages.SourcePodsWanted) {
	r.Helper()
	r.kit.Take()
	r.kit.Advance(sendDelay)
	r.kit.Take()
	r.kit.Send(messages.Sources, messages.ResendDesired{})
	sent := r.kit.Take()
	if len(sent) != 1 || sent[0].To != messages.Pods {
		r.Fatalf("told %v", sent)
	}
	desired = sent[0].Msg.(messages.SourcePodsWanted)
	var out []string
	for _, p := range desired.Pods {
		out = append(out, p.Namespace+"/"+p.Name+"="+p.Spec.Containers[0].Image)
	}
	return strings.Join(out, " "), desired
}

func (r *rig) wants(want string) messages.SourcePodsWanted {
	r.Helper()
	got, desired := r.wanted()
	if got != want {
		r.Errorf("wanted are %q, and not %q", got, want)
	}
	return desired
}

func (r *rig) says(got, want string) {
	r.Helper()
	if got != want {
		r.Errorf("it says %q, and not %q", got, want)
	}
}

// files returns the names of the journal's files, without its marker.
func (r *rig) files() []string {
	r.Helper()
	entries, err := os.ReadDir(r.opts.Dir)
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.Name() != "journal" {
			out = append(out, e.Name())
		}
	}
	return out
}

func yaml(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  containers:\n  - name: main\n    image: %s\n",
		name, image)
}

func publish(b *board.Board, source messages.Address, pod *v1.Pod) {
	b.Publish(board.Snapshot{Pods: []board.Pod{{Pod: pod, Source: source}}})
}
