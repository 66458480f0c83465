// Package submit is the actor for the pods that were submitted on the admin socket.
//
// A submission is written to a journal before it is answered: one file per pod, replaced atomically. The newest accepted
// version thus survives a kill and a power cut, and there is never anything to replay. The journal belongs to the process and
// outlives the actor. Every read and write of it is work outside the mailbox.
//
// The journal holds the author's text and the pod made from it. Submitted pods are static pods: the node's name is appended
// to theirs, and the annotation kubernetes.io/config.source is "submit".
//
// The pods of "playlet run" are records in a journal of their own. Their ConfigMaps and Secrets are files submitted-* in the
// folder of --object-dir, which the objects actor reads like any others. The grace period of a removal with --grace-period is
// stored with the departed pod.
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

// Options configures the actor.
type Options struct {
	// Dir is a folder for this actor alone, e.g. <root-dir>/playlet/submissions. Its parent must exist.
	Dir  string
	Node base.Node
	// ObjectDir is the objects actor's folder. Submitted ConfigMaps and Secrets are written there. Empty: none are accepted.
	ObjectDir string
	// StaticPath is the path of the file source, used to name the file of a pod that was not submitted; empty: none.
	StaticPath string
	// Board is where the pods actor publishes. The name of another source's pod is rejected. nil: no such pods are known.
	Board *board.Board
	// Clock is the tree's clock; nil: the real one.
	Clock clock.PassiveClock
}

// MaxManifest is the maximum size of a manifest in bytes.
const MaxManifest = manifest.MaxBytes

// Source is the annotation kubernetes.io/config.source of submitted pods. Any value but "api" marks a static pod.
const Source = manifest.SubmitSource

const (
	// checkEvery is the interval at which everything is sent again, and an unreadable journal is retried.
	checkEvery = 20 * time.Second
	// lostCheck is the same until a lost journal can be compared with the runtime.
	lostCheck = time.Second
	// sendDelay combines a burst of submissions into one message.
	sendDelay   = 10 * time.Millisecond
	workTimeout = time.Minute
)

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	j := newJournal(opts)
	return func(string) supervisors.Actor { return &actor{journal: j} }
}

type actor struct {
	journal *journal
	state   state             // the newest known state of the journal
	desired base.DesiredState // follows from state
	sending bool
	opening bool
	failure string // the reason why the journal cannot be read, or empty
}

type (
	// workDone is the result of all work: the journal's state afterwards, and the answer to the request, if there was one.
	workDone struct {
		state  state
		answer any
		err    error // the journal could not be read
	}
	openResult struct{ workDone }
	sendDue    struct{}
	checkDue   struct{}
)

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.read(ctx, "ReadJournal", a.journal.open)
		ctx.After(a.nextCheck(), checkDue{})
	case checkDue:
		a.desired.Send(ctx)
		if !a.state.loaded() || a.failure != "" {
			a.read(ctx, "ReadJournal", a.journal.open)
		} else if len(a.state.gone) > 0 || a.state.watch {
			a.read(ctx, "PruneJournal", a.journal.prune)
		}
		ctx.After(a.nextCheck(), checkDue{})
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
	case openResult:
		a.opening = false
		a.take(ctx, m.workDone)
	case workDone:
		a.take(ctx, m)
		ctx.Reply(m.answer)
	default:
		ctx.Unhandled(msg)
	}
}

// nextCheck returns the time until the next check. A loss is settled soon after the node's pods are known.
func (a *actor) nextCheck() time.Duration {
	if b := a.journal.opts.Board; b != nil && !b.Now().Complete() && (a.state.lost || !a.state.loaded()) {
		return lostCheck
	}
	return checkEvery
}

// read starts f, which reads or prunes the journal, unless one is in progress.
func (a *actor) read(ctx supervisors.Context, name string, f func() (state, error)) {
	if a.opening {
		return
	}
	a.opening = true
	ctx.Do(supervisors.Work{Name: name, Timeout: workTimeout, Run: func(context.Context) any {
		s, err := f()
		return openResult{workDone{state: s, err: err}}
	}})
}

// work runs f, which uses the journal, and replies with its result.
func (a *actor) work(ctx supervisors.Context, name string, f func() any) {
	j := a.journal
	ctx.Do(supervisors.Work{Name: name, Timeout: workTimeout, Run: func(context.Context) any {
		answer := f()
		return workDone{state: j.now(), answer: answer}
	}})
}

// take records the journal's state, unless a later one is known: work ends in any order.
func (a *actor) take(ctx supervisors.Context, m workDone) {
	if m.err != nil && m.err.Error() != a.failure {
		what := "until then nothing that was found running is ended"
		if m.state.loaded() {
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
	a.desired.Unread, a.desired.Journal = nil, a.journal.opts.Dir
	if m.state.lost {
		a.desired.Unread = []string{a.journal.opts.Dir}
	}
	for _, p := range m.state.problems {
		if !p.KeptLast && !p.Warning { // nor has memory the record
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

// Inspection describes the actor's state.
type Inspection struct {
	Journal string `json:"journal"` // the folder
	base.Inspection
	Failure string `json:"failure,omitempty"`
}

func (a *actor) Inspect() any {
	return Inspection{Journal: a.journal.opts.Dir, Inspection: a.desired.Inspect(), Failure: a.failure}
}
