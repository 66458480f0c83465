package pods

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// phase is how far it is known what is there already and what is wanted.
type phase string

const (
	reading  phase = "reading"  // the checkpoints are being read
	auditing phase = "auditing" // the runtime is asked what runs; until that is known, nothing is begun
	hearing  phase = "hearing"  // pods are run; a source has not told yet what it wants: what may be its stays
	complete phase = "complete" // it is known what must stay
)

// phases are all transitions. Another one is a bug and fails the actor.
var phases = map[phase]phase{reading: auditing, auditing: hearing, hearing: complete}

// enterPhase is the one way from a phase to the next.
func (a *actor) enterPhase(ctx supervisors.Context, to phase) {
	if phases[a.phase] != to {
		panic("pods: no edge from " + string(a.phase) + " to " + string(to))
	}
	ctx.Log().Debug("phase transition", "from", a.phase, "to", to)
	a.phase = to
}

// unready is why nothing can be begun yet; nil where it can.
func (a *actor) unready() *messages.Reason {
	switch {
	case a.phase == reading:
		return &messages.Reason{Code: messages.ReasonAgentStarting, Message: "the agent is starting"}
	case a.phase != auditing:
		return nil
	case a.node.runtime.Reason.Code != "":
		return new(a.node.runtime.Reason)
	}
	return &messages.Reason{Code: messages.ReasonRuntimeUnavailable,
		Message: "the container runtime has not said yet what runs"}
}

// askAudit asks what runs already, until that is known.
func (a *actor) askAudit(ctx supervisors.Context) {
	if a.phase == auditing {
		ctx.Tell(messages.Runtime, messages.GetAudit{})
		ctx.After(askEvery, auditDue{})
	}
}

func (a *actor) auditEnded(ctx supervisors.Context, m messages.RuntimeAudited) {
	if m.ReadAt.Before(a.began) || a.phase == reading {
		return // on its way to an earlier life of this actor, or not asked for yet
	}
	if a.phase == auditing {
		a.enterPhase(ctx, hearing)
	}
	for _, e := range a.entries {
		e.found = nil
		if e.goneAt.Before(m.ReadAt) {
			e.goneAt = time.Time{}
		}
	}
	for i := range m.Pods {
		f := &m.Pods[i]
		e := a.entry(f.UID, f.Namespace+"/"+f.Name, ctx.Now())
		if a.opts.Named(e.uid, e.name); !e.hasActor() && e.goneAt.IsZero() {
			e.found = f
		}
	}
	a.reconcile(ctx)
}
