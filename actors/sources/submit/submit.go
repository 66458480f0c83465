// Package submit is the actor that wants the pods that were submitted on the admin socket.
//
// What is accepted is written to a journal before it is answered: one file a pod, replaced atomically, so that the
// newest version that was accepted is there after a kill and after a power cut, and there is never anything to replay.
// The journal is the process's and outlives the actor; every reading and writing of it is work outside the mailbox.
//
// The journal holds the text that the author wrote and the pod that was made from it. Submitted pods are static pods: the
// node's name is appended to theirs, and the annotation kubernetes.io/config.source is "submit".
//
// The pods of "playlet run" are records in a journal of their own; their ConfigMaps and Secrets are files submitted-* in the
// folder of --object-dir, which objects reads as it reads the others. How long a pod has that is removed with --grace-period is
// in memory alone: a kill of the agent gives it its own grace period back.
package submit

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// Dir is a folder for this actor alone, e.g. <root-dir>/playlet/submissions. The folder that it lies in must be there.
	Dir  string
	Node base.Node
	// ObjectDir is the folder that the objects actor reads; ConfigMaps and Secrets that are submitted are written there. Empty:
	// none are taken.
	ObjectDir string
	// StaticPath is where the file source reads manifests, to name the file of a pod that was not submitted; empty: none.
	StaticPath string
	// Board is where the pods actor publishes: a name that another source's pod has is refused. nil: none is known.
	Board *board.Board
	// Clock is the tree's clock; nil: the real one.
	Clock clock.PassiveClock
}

// MaxManifest is how many bytes a manifest may have.
const MaxManifest = manifest.MaxBytes

// Source is the annotation kubernetes.io/config.source of submitted pods. They are static pods: anything but "api" says so.
const Source = manifest.SubmitSource

const (
	// checkEvery is how often everything is sent whatever happens, or the journal tried again that could not be read.
	checkEvery = 20 * time.Second
	// sendDelay gathers a storm of submissions into one message.
	sendDelay   = 10 * time.Millisecond
	workTimeout = time.Minute
)

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	j := newJournal(opts)
	return func(string) supervisors.Actor { return &actor{journal: j} }
}

type actor struct {
	journal *journal
	state   state        // of the journal, the newest that is known
	desired base.Desired // by state
	sending bool
	opening bool
	failure string // why the journal cannot be read, when it cannot
}

type (
	// done is the result of all work: the journal as it then was, and what to answer to who asked, if anybody did.
	done struct {
		state  state
		answer any
		err    error // the journal could not be read
	}
	opened   struct{ done }
	sendDue  struct{}
	checkDue struct{}
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.read(ctx, "ReadJournal", a.journal.open)
		ctx.After(checkEvery, checkDue{})
	case checkDue:
		a.desired.Send(ctx)
		if !a.state.heard() || a.failure != "" {
			a.read(ctx, "ReadJournal", a.journal.open)
		} else if len(a.state.gone) > 0 {
			a.read(ctx, "PruneJournal", a.journal.prune)
		}
		ctx.After(checkEvery, checkDue{})
	case messages.ResendDesired:
		a.desired.Send(ctx)
	case sendDue:
		a.sending = false
		a.desired.Send(ctx)
	case messages.SubmitPods:
		now := ctx.Now()
		a.work(ctx, "SubmitPods", func() any { return a.journal.submit(m, now) })
	case messages.WithdrawPod:
		a.work(ctx, "WithdrawPod", func() any { return a.journal.withdraw(m) })
	case messages.GetSubmissions:
		a.work(ctx, "GetSubmissions", func() any { return a.journal.list(m) })
	case messages.GetSubmittedObjects:
		a.work(ctx, "GetSubmittedObjects", a.journal.listObjects)
	case opened:
		a.opening = false
		a.take(ctx, m.done)
	case done:
		a.take(ctx, m)
		ctx.Reply(m.answer)
	default:
		ctx.Unhandled(msg)
	}
}

// read has f read or prune the journal, unless that is in progress.
func (a *actor) read(ctx supervisors.Context, name string, f func() (state, error)) {
	if a.opening {
		return
	}
	a.opening = true
	ctx.Do(supervisors.Work{Name: name, Timeout: workTimeout, Run: func(context.Context) any {
		s, err := f()
		return opened{done{state: s, err: err}}
	}})
}

// work does f, which uses the journal, and answers with what it returns.
func (a *actor) work(ctx supervisors.Context, name string, f func() any) {
	j := a.journal
	ctx.Do(supervisors.Work{Name: name, Timeout: workTimeout, Run: func(context.Context) any {
		answer := f()
		return done{state: j.now(), answer: answer}
	}})
}

// take takes the journal's state, unless a later one is known: works end in any order.
func (a *actor) take(ctx supervisors.Context, m done) {
	if m.err != nil && m.err.Error() != a.failure {
		what := "until then nothing that was found running is ended"
		if m.state.heard() {
			what = "until then what was known of it stays in force"
		}
		ctx.Log().Error("the journal of submissions cannot be read; it is tried again, and "+what, "error", m.err)
	}
	switch {
	case m.err != nil:
		a.failure = m.err.Error()
	case m.state.version > a.state.version:
		a.failure = ""
	}
	if m.state.version <= a.state.version {
		return
	}
	a.state = m.state
	a.desired.Graces, a.desired.Gone = m.state.graces, m.state.gone
	a.desired.Known, a.desired.Problems, a.desired.Pods = true, m.state.problems, make([]*v1.Pod, 0, len(m.state.records))
	a.desired.Unread = nil
	for _, p := range m.state.problems {
		if !p.KeptLast && !p.Warning { // memory has no record of it either
			a.desired.Unread = append(a.desired.Unread, p.Path)
		}
	}
	for _, r := range m.state.records {
		a.desired.Pods = append(a.desired.Pods, r.Pod)
	}
	a.desired.Log(ctx, "a submission was damaged", "")
	if !a.sending {
		a.sending = true
		ctx.After(sendDelay, sendDue{})
	}
}

// Inspection is what the actor says of itself.
type Inspection struct {
	Journal string `json:"journal"` // the folder
	base.Inspection
	Failure string `json:"failure,omitempty"`
}

func (a *actor) Inspect() any {
	return Inspection{Journal: a.journal.opts.Dir, Inspection: a.desired.Inspect(), Failure: a.failure}
}
