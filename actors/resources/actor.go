package resources

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/cgroups"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// Tree is the tree of control groups; nil: pods have none [cgroupsPerQOS].
	Tree *cgroups.Tree
	// Parent is asked then for what all pods lie in.
	Parent func() string
	// Operations is the process-wide table of work that outlives the actor.
	Operations Operations
}

// New makes the constructor of the resources actor. It answers EnsurePodCgroup, RemovePodCgroup and PodCgroupsWanted; see the
// messages for what each promises.
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor { return &actor{opts: opts, book: newBook(), told: map[string]string{}} }
}

type actor struct {
	opts Options
	book *book
	told map[string]string // failures in the log, by what failed
}

// podEvent is the result of work or a timer of one pod.
type podEvent struct {
	uid string
	ev  any
}

// PodUID implements messages.Subject.
func (e podEvent) PodUID() string { return e.uid }

// Results and timers of the node.
type (
	nodeMade    struct{ err error }
	nodeRetry   struct{ turn uint64 }
	groupsFound struct {
		uids []string
		err  error
	}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	if a.opts.Tree == nil {
		a.without(ctx, msg)
		return
	}
	switch m := msg.(type) {
	case messages.Started:
		// Nothing is known, and nothing is assumed: pods that wait ask again.
	case messages.EnsurePodCgroup:
		a.do(ctx, a.book.want(m.UID, m.Pod))
	case messages.RemovePodCgroup:
		a.do(ctx, a.book.unwant(m.UID, true))
	case messages.PodCgroupsWanted:
		a.do(ctx, a.book.wanted(m))
	case podEvent:
		a.do(ctx, a.book.on(m.uid, m.ev, ctx.Now()))
	case nodeMade:
		a.do(ctx, a.book.nodeMade(m.err, ctx.Now()))
	case nodeRetry:
		a.do(ctx, a.book.nodeRetry(m.turn))
	case groupsFound:
		a.do(ctx, a.book.found(m.uids, m.err))
	default:
		ctx.Unhandled(msg)
	}
}

// without answers where pods have no groups of their own.
func (a *actor) without(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, messages.PodCgroupsWanted:
	case messages.EnsurePodCgroup:
		ctx.Tell(messages.PodAddress(m.UID), messages.PodCgroupReady{UID: m.UID, Pod: m.Pod, Parent: a.opts.Parent()})
	case messages.RemovePodCgroup:
		ctx.Tell(messages.PodAddress(m.UID), messages.PodCgroupRemoved{UID: m.UID})
	default:
		ctx.Unhandled(msg)
	}
}

// Patience with one operation, which goes on without the actor.
const (
	makePatience   = 30 * time.Second
	removePatience = 30 * time.Second
)

// do carries out effects.
func (a *actor) do(ctx supervisors.Context, effects []effect) {
	w := work{a.opts.Tree, a.opts.Operations}
	for _, e := range effects {
		uid := e.uid
		switch what := e.what.(type) {
		case tell:
			ctx.Tell(messages.PodAddress(uid), what.msg)
		case beginMake:
			ctx.Do(supervisors.Work{Name: "make the control group of " + uid, Timeout: makePatience, Run: func(ctx context.Context) any {
				return podEvent{uid, w.make(ctx, uid, what.pod)}
			}})
		case beginRemove:
			ctx.Do(supervisors.Work{Name: "remove the control group of " + uid, Timeout: removePatience, Run: func(ctx context.Context) any {
				return podEvent{uid, w.remove(ctx, uid)}
			}})
		case beginNode:
			ctx.Do(supervisors.Work{Name: "make the node's control groups", Timeout: makePatience, Run: func(ctx context.Context) any {
				return w.node(ctx, what.pods)
			}})
		case beginList:
			ctx.Do(supervisors.Work{Name: "list control groups", Timeout: makePatience, Run: func(ctx context.Context) any {
				return w.list(ctx)
			}})
		case retryAfter:
			if uid == "" {
				ctx.After(what.d, nodeRetry{what.turn})
			} else {
				ctx.After(what.d, podEvent{uid, retryDue{what.turn}})
			}
		case failed:
			if a.told[what.what] != what.err.Error() {
				a.told[what.what] = what.err.Error()
				log := ctx.Log().With("of", what.what)
				if uid != "" {
					log = ctx.Log().With("pod", uid)
				}
				log.Warn("a control group cannot be made or removed; it is tried again", "error", what.err)
			}
		case mended:
			delete(a.told, what.what)
		}
	}
}

// inspection is what the actor says of itself.
type inspection struct {
	NodeReady bool                     `json:"nodeReady"`
	Node      *messages.Reason         `json:"node,omitempty"` // why it is not
	Pods      map[string]podInspection `json:"pods,omitempty"`
}

type podInspection struct {
	Phase  phase            `json:"phase"`
	Parent string           `json:"parent,omitempty"`
	Reason *messages.Reason `json:"reason,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	out := inspection{NodeReady: a.book.node.ready, Node: a.book.node.reason, Pods: map[string]podInspection{}}
	for uid, e := range a.book.pods {
		out.Pods[uid] = podInspection{e.phase, e.parent, e.reason}
	}
	return out
}
