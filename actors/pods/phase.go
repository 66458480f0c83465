package pods

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// phase is the progress of the actor's start.
type phase string

const (
	reading  phase = "reading"  // the checkpoints are being read
	auditing phase = "auditing" // the runtime is being audited; nothing starts
	hearing  phase = "hearing"  // pods run; a source has not reported yet, and pods that may be its own stay
	complete phase = "complete" // it is known which pods have to stay
)

// phases are all transitions. Any other is a bug and fails the actor.
var phases = map[phase]phase{reading: auditing, auditing: hearing, hearing: complete}

// enterPhase is the only way from one phase to the next.
func (a *actor) enterPhase(ctx supervisors.Context, to phase) {
	if phases[a.phase] != to {
		panic("pods: no edge from " + string(a.phase) + " to " + string(to))
	}
	ctx.Log().Debug("phase transition", "from", a.phase, "to", to)
	a.phase = to
}

// unready returns the reason for which nothing can start yet, or nil.
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

// askAudit requests the audit of the runtime until it arrives.
func (a *actor) askAudit(ctx supervisors.Context) {
	if a.phase == auditing {
		ctx.Tell(messages.Runtime, messages.GetAudit{})
		ctx.After(askEvery, auditDue{})
	}
}

func (a *actor) auditEnded(ctx supervisors.Context, m messages.RuntimeAudited) {
	if m.ReadAt.Before(a.began) || a.phase == reading {
		return // sent to an earlier life of this actor, or not requested yet
	}
	if a.phase == auditing {
		a.enterPhase(ctx, hearing)
	}
	for _, e := range a.entries {
		e.audited = nil
		if e.goneAt.Before(m.ReadAt) {
			e.goneAt = time.Time{}
		}
	}
	back := a.checkpoints.takeBack()
	for i := range m.Pods {
		f := &m.Pods[i]
		e := a.entry(f.UID, f.Namespace+"/"+f.Name, ctx.Now())
		if a.opts.Named(e.uid, e.name); !e.hasActor() && e.goneAt.IsZero() {
			e.audited = f
		}
		if back[e.uid] && e.record.Final != nil && f.Alive() {
			ctx.Log().Warn("the final status of a pod was kept aside by another version of the agent, which has run the pod "+
				"again; the pod goes on", "pod", e.uid)
			a.keep(ctx, e, record{})
		}
	}
	a.reconcile(ctx)
}
