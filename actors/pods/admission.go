package pods

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// admitNew admits what is wanted and not there yet: first what was admitted before, whose claims on the node count, then the
// others one by one, static pods first, then critical ones, and the oldest before the younger.
func (a *actor) admitNew(ctx supervisors.Context, fresh []want) {
	was := a.waits
	a.waits = map[string]messages.Reason{}
	var undecided []want
	for _, w := range fresh {
		if a.admitted(w) {
			a.admit(ctx, w)
			continue
		}
		undecided = append(undecided, w)
	}
	if len(undecided) == 0 {
		return
	}
	slices.SortStableFunc(undecided, firstCome)
	r := a.newRoom(ctx)
	for _, w := range undecided {
		claim := admission.NewClaim(w.pod)
		wait, refusal := a.decide(ctx, r, w, claim)
		switch {
		case wait != nil:
			a.hold(ctx, w, was, *wait)
			if wait.Code == messages.ReasonPreempting { // what is made for this one is not for the next
				r.reserve(claim)
				a.awaitRoom(ctx)
			}
		case refusal.Refused():
			a.refuse(ctx, w, refusal)
		default:
			a.admit(ctx, w)
			r.add(claim)
		}
	}
}

// room is what there is for pods that come: now, when those are gone that are ended for a critical pod, and, where some of
// these do not end, without them.
type room struct {
	node         *admission.Node
	now          *admission.Ledger
	later, taken *admission.Ledger // nil where they are no other than now
	awaited      bool              // a pod waits for the end of those that are deleted, so that they are counted as leaving, too
	// reserved is held by what was found and may not be ended, and for pods that others are ended for.
	reserved []*admission.Claim
}

func (a *actor) newRoom(ctx supervisors.Context) *room {
	r := &room{node: a.thisNode(), reserved: a.foundClaims()}
	r.now = admission.NewLedger(slices.Concat(a.claims(nil), r.reserved)...)
	a.clear(ctx, r)
	return r
}

// clear counts what there will be when the preempted pods are gone, and those whose end is awaited.
func (a *actor) clear(ctx supervisors.Context, r *room) {
	failing, overdue := false, false
	staying := a.claims(func(e *entry) bool {
		leaves := (e.fail != nil || r.awaited && e.ending != nil) && !e.overdue(ctx.Now())
		failing = failing || leaves
		return leaves
	})
	if failing {
		r.later = admission.NewLedger(slices.Concat(staying, r.reserved)...)
	}
	rest := a.claims(func(e *entry) bool {
		late := e.overdue(ctx.Now())
		overdue = overdue || late
		return late
	})
	if overdue {
		r.taken = admission.NewLedger(slices.Concat(rest, r.reserved)...)
	}
}

func (r *room) add(c *admission.Claim) {
	for _, l := range []*admission.Ledger{r.now, r.later, r.taken} {
		if l != nil {
			l.Add(c)
		}
	}
}

func (r *room) reserve(c *admission.Claim) {
	r.reserved = append(r.reserved, c)
	r.add(c)
}

// firstCome is the order in which pods that come together are looked at.
func firstCome(x, y want) int {
	rank := func(w want) int {
		switch {
		case cri.IsStatic(w.pod):
			return 0
		case admission.Critical(w.pod):
			return 1
		default:
			return 2
		}
	}
	if byRank := cmp.Compare(rank(x), rank(y)); byRank != 0 || rank(x) == 0 {
		return byRank
	}
	return x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time)
}

// decide says whether a pod is admitted, refused for good, or waits. A static pod is never refused for good: nobody would make
// another one.
func (a *actor) decide(ctx supervisors.Context, r *room, w want, claim *admission.Claim) (*messages.Reason, admission.Refusal) {
	static := cri.IsStatic(w.pod)
	if !static && a.awaitNode(ctx) {
		return &messages.Reason{Code: messages.ReasonNodeUnknown,
			Message: "this node's object, whose labels and taints decide, was not read yet"}, admission.Refusal{}
	}
	refusal := admission.Admit(r.node, r.now, claim)
	if !refusal.Refused() {
		return nil, refusal
	}
	if len(refusal.Lacks) > 0 && r.taken != nil && !admission.Admit(r.node, r.taken, claim).Refused() {
		ctx.Log().Warn("a critical pod is admitted, although others that should have ended still hold what it needs",
			"pod", fullName(w.pod), "podUID", w.pod.UID, "lacks", refusal.Message)
		return nil, admission.Refusal{}
	}
	if r.later != nil && !admission.Admit(r.node, r.later, claim).Refused() {
		return a.makingRoom(ctx, refusal.Message), admission.Refusal{}
	}
	if len(refusal.Lacks) > 0 {
		if a.preempt(ctx, r, w, claim) {
			return a.makingRoom(ctx, refusal.Message), admission.Refusal{}
		}
		if !static {
			refusal = admission.Refusal{Reason: admission.ReasonUnexpected,
				Message: "no pods that may be ended for it hold enough: " + refusal.Message}
		}
	}
	byLabels := refusal.Reason == admission.ReasonNodeAffinity || refusal.Reason == admission.ReasonTaintToleration
	if static || byLabels && a.opts.Here.Told && !a.node.heard {
		return &messages.Reason{Code: refusal.Reason, Message: refusal.Message}, admission.Refusal{}
	}
	return nil, refusal
}

// admitted says that the pod was admitted before: it is over, something of it is there, or the API server was told that it began.
// Such a pod is never asked again whether it may be here.
func (a *actor) admitted(w want) bool {
	uid := string(w.pod.UID)
	told := w.source == messages.APIServer && (ended(&w.pod.Status) || w.pod.Status.StartTime != nil)
	_, failing := a.failing.pods[uid]
	return a.finished[uid] != nil || told || failing || a.isFound(uid)
}

// ended says that the phase is one that a pod never leaves.
func ended(s *v1.PodStatus) bool {
	return s != nil && (s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed)
}

// hold lets a pod wait; it is looked at again whenever something changes. was is what each waited for before.
func (a *actor) hold(ctx supervisors.Context, w want, was map[string]messages.Reason, why messages.Reason) {
	uid := string(w.pod.UID)
	a.waits[uid] = why
	if old, ok := was[uid]; ok && old == why {
		return
	}
	ctx.Log().Warn("a pod is not admitted; it waits", "pod", fullName(w.pod), "podUID", uid, "reason", why.Code, "message",
		why.Message)
	if why.Code == messages.ReasonNodeUnknown { // it is known in a moment
		return
	}
	if why.Code != messages.ReasonPreempting {
		tellEvent(ctx, w.pod, why.Code, why.Message)
	}
	a.tellStatus(ctx, a.heldStatus(w, why))
}

// refuse gives a pod its final status. From then on it is one that has finished: it is never run, and ends when it is deleted.
func (a *actor) refuse(ctx supervisors.Context, w want, r admission.Refusal) {
	uid := string(w.pod.UID)
	now := metaNow(ctx)
	status := &v1.PodStatus{
		Phase: v1.PodFailed, Reason: r.Reason, Message: r.StatusMessage(), StartTime: &now, QOSClass: cri.QOSClass(w.pod),
		ObservedGeneration: w.pod.Generation,
	}
	ctx.Log().Warn("a pod is refused", "pod", fullName(w.pod), "podUID", uid, "reason", r.Reason, "message", r.Message)
	tellEvent(ctx, w.pod, r.Reason, r.Message)
	a.finished[uid] = status
	a.save(ctx)
	a.admit(ctx, w)
	a.entries[uid].status = status
	a.tellStatus(ctx, a.entries[uid].wanted())
}

// reconsider looks again at the pods that were not admitted.
func (a *actor) reconsider(ctx supervisors.Context) {
	if len(a.waits) > 0 {
		a.reconcile(ctx)
	}
}

// claims are what the pods that are here hold of the node, until nothing of them runs any more; those that but says are left
// out.
func (a *actor) claims(but func(*entry) bool) []*admission.Claim {
	out := make([]*admission.Claim, 0, len(a.entries))
	for _, uid := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[uid]
		if !a.holdsRoom(e) || but != nil && but(e) {
			continue
		}
		// an orphan's is what was found of it
		if e.claim == nil || e.claim.Pod != e.pod && (e.ending == nil || !e.ending.Orphan) {
			e.claim = admission.NewClaim(e.pod)
		}
		out = append(out, e.claim)
	}
	return out
}

// holdsRoom says that a pod that is here still has what it asked for.
func (a *actor) holdsRoom(e *entry) bool {
	return !e.gone && a.finished[string(e.pod.UID)] == nil && !ended(e.status)
}
