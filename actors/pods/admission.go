package pods

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/pods/found"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// admitNew decides over what is held for nothing else: first what was admitted before, whose claims on the node count, then
// over the resizes of what is here, then over the others one by one, static pods first, then critical ones, and the oldest before
// the younger.
func (a *actor) admitNew(ctx supervisors.Context, fresh []*entry) {
	a.undecided.some = false
	var undecided []*entry
	for _, e := range fresh {
		if e.endedWithMachine() && !a.node.shutdown {
			a.keep(ctx, e, record{})
		}
		if e.admittedBefore() {
			a.readmit(ctx, e)
			continue
		}
		undecided = append(undecided, e)
	}
	a.resize(ctx)
	if len(undecided) == 0 {
		return
	}
	slices.SortStableFunc(undecided, firstCome)
	r := a.newRoom(ctx)
	for _, e := range undecided {
		claim := admission.NewClaim(e.want.pod)
		wait, refusal := a.decide(ctx, r, e.want, claim)
		if wait == nil && !refusal.Refused() {
			wait, refusal = a.allocate(ctx, e)
		}
		switch {
		case wait != nil:
			a.undecided.some = true
			allocating := wait.Code == messages.ReasonAllocating
			a.hold(ctx, e, *wait, allocating || wait.Code == messages.ReasonNodeUnknown) // which is known in a moment
			// What is made, or kept, for this one is not for the next.
			if allocating || wait.Code == messages.ReasonPreempting {
				r.reserve(claim)
			}
			if wait.Code == messages.ReasonPreempting {
				a.awaitRoom(ctx)
			}
		case refusal.Refused():
			a.refuse(ctx, e, refusal)
		default:
			warnOfExcess(ctx, r.node, claim)
			a.admit(ctx, e)
			r.add(claim)
		}
	}
}

// warnOfExcess warns of a pod that asks for more than the machine has, and is run all the same: without a cluster, requests are
// not held against what there is.
func warnOfExcess(ctx supervisors.Context, node *admission.Node, claim *admission.Claim) {
	if text := admission.Exceeds(node, claim); text != "" {
		ctx.Log().Warn("a pod asks for more than this machine has for pods; it is run all the same", "pod", fullName(claim.Pod),
			"podUID", claim.Pod.UID, "asks", text)
		recordEvent(ctx, claim.Pod, messages.EventExceedsNode,
			"The pod asks for more than this node has for pods ("+text+"). It is run all the same, and may be short of it.")
	}
}

// admittedBefore says that the pod is over, that something of it is there, or that the API server was told that it began. Such a
// pod is never asked again whether it may be here.
func (e *entry) admittedBefore() bool {
	s := &e.want.pod.Status
	began := e.want.source == messages.APIServer && (final(s) || s.StartTime != nil)
	return e.record != (record{}) || began || e.found != nil
}

// endedWithMachine says that it is a static pod that was ended by a shutdown of the machine. Nobody makes another one: it runs
// again when an agent begins after that.
func (e *entry) endedWithMachine() bool {
	failed := e.record.Fail != nil && e.record.Fail.Reason == messages.ReasonTerminated
	return translate.IsStatic(e.want.pod) &&
		(failed || e.record.Final != nil && e.record.Final.Reason == messages.ReasonTerminated)
}

// admit begins the life of the pod's actor. A pod that the API server calls Succeeded or Failed, and of which nothing is known
// here, is not run again.
func (a *actor) admit(ctx supervisors.Context, e *entry) {
	if s := &e.want.pod.Status; e.want.source == messages.APIServer && final(s) && e.record.Final == nil {
		a.keep(ctx, e, record{Final: s, Fail: e.record.Fail})
	}
	to := running
	switch {
	case e.record.Final != nil:
		to = finished
	case e.record.Fail != nil:
		to = failing
	}
	a.spawn(ctx, e)
	a.enter(ctx, e, to)
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
	r := &room{node: a.node.admits(&a.opts.Here, a.opts.Cluster), reserved: a.foundClaims()}
	r.now = admission.NewLedger(slices.Concat(a.claims(nil), r.reserved)...)
	a.clear(ctx, r)
	return r
}

// clear counts what there will be when the preempted pods are gone, and those whose end is awaited.
func (a *actor) clear(ctx supervisors.Context, r *room) {
	without := func(goes func(*entry) bool) *admission.Ledger {
		rest := a.claims(goes)
		if len(rest) == len(a.claims(nil)) {
			return nil
		}
		return admission.NewLedger(slices.Concat(rest, r.reserved)...)
	}
	r.later = without(func(e *entry) bool {
		return (e.record.Fail != nil || r.awaited && e.departs()) && !e.overdue(ctx.Now())
	})
	r.taken = without(func(e *entry) bool { return e.overdue(ctx.Now()) })
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
func firstCome(x, y *entry) int {
	rank := func(w *want) int {
		switch {
		case translate.IsStatic(w.pod):
			return 0
		case admission.Critical(w.pod):
			return 1
		default:
			return 2
		}
	}
	if byRank := cmp.Compare(rank(x.want), rank(y.want)); byRank != 0 || rank(x.want) == 0 {
		return byRank
	}
	return x.want.pod.CreationTimestamp.Compare(y.want.pod.CreationTimestamp.Time)
}

// decide says whether a pod is admitted, refused for good, or waits. A static pod is never refused for good: nobody would make
// another one.
func (a *actor) decide(ctx supervisors.Context, r *room, w *want, claim *admission.Claim) (*messages.Reason, admission.Refusal) {
	static := translate.IsStatic(w.pod)
	if a.node.shutdown {
		if static {
			return &messages.Reason{Code: messages.ReasonNodeShutdown, Message: messages.NodeShutdownCondition},
				admission.Refusal{}
		}
		return nil, admission.Refusal{Reason: messages.ReasonNodeShutdown, Message: messages.NodeShutdownMessage}
	}
	if !static && a.node.awaited(ctx.Now()) {
		return &messages.Reason{Code: messages.ReasonNodeUnknown,
			Message: "this node's object, whose labels and taints decide, was not read yet"}, admission.Refusal{}
	}
	refusal := admission.Admit(r.node, r.now, claim)
	if !refusal.Refused() {
		return nil, refusal
	}
	if len(refusal.Lacks) > 0 && r.taken != nil && !admission.Admit(r.node, r.taken, claim).Refused() {
		ctx.Log().Warn("a critical pod is admitted, although others that should have ended still hold what it needs",
			"pod", fullName(w.pod), "podUID", w.pod.UID, "missing", refusal.Message)
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
	if static || byLabels && !a.node.heard {
		return &messages.Reason{Code: refusal.Reason, Message: refusal.Message, Cause: refusal.Cause}, admission.Refusal{}
	}
	return nil, refusal
}

// refuse gives a pod its final status. From then on it is one that has finished: it is never run, and ends when it is deleted.
func (a *actor) refuse(ctx supervisors.Context, e *entry, r admission.Refusal) {
	now, pod := metav1.NewTime(ctx.Now()), e.want.pod
	status := &v1.PodStatus{
		Phase: v1.PodFailed, Reason: r.Reason, Message: r.StatusMessage(), StartTime: &now, QOSClass: translate.QOSClass(pod),
		ObservedGeneration: pod.Generation,
	}
	ctx.Log().Warn("a pod is refused", "pod", fullName(pod), "podUID", e.uid, "reason", r.Reason, "message", r.Message)
	recordWait(ctx, pod, messages.Reason{Code: r.Reason, Message: r.Message, Cause: r.Cause})
	metrics.Refused(r.Reason)
	cause := r.Cause
	cause.Text = cmp.Or(cause.Text, r.Message)
	a.keep(ctx, e, record{Final: status, Cause: cause})
	a.admit(ctx, e)
	e.status = status
	a.tellStatus(ctx, e)
}

// undecided is of the pods that wait for room, for the node or for a resize.
type undecided struct {
	some    bool      // there are such
	at      time.Time // when they are looked at again, since others should have ended by then
	trigger string    // what has them looked at now, for the figures of resizes
}

// reconsider looks again at the pods that were not admitted.
func (a *actor) reconsider(ctx supervisors.Context) {
	if a.undecided.some {
		a.reconcile(ctx)
	}
}

// claims are what the pods that are here hold of the node, until nothing of them runs any more; those that but says are left
// out.
func (a *actor) claims(but func(*entry) bool) []*admission.Claim {
	out := make([]*admission.Claim, 0, len(a.entries))
	for _, uid := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[uid]
		if !e.holdsRoom() || but != nil && but(e) {
			continue
		}
		out = append(out, a.claimOf(e))
	}
	return out
}

// claimOf is what a pod holds. An orphan's is what was found of it.
func (a *actor) claimOf(e *entry) *admission.Claim {
	if e.claim == nil || e.claim.Pod != e.admitted && !e.orphan() {
		e.claim = admission.NewClaim(e.admitted)
	}
	return e.claim
}

// holdsRoom says that a pod that is here still has what it asked for.
func (e *entry) holdsRoom() bool {
	return e.lingers || (e.runs() || e.ends()) && e.record.Final == nil && !final(e.status)
}

// foundClaims are what pods hold of the node that were found running and of which no source has told yet, and what those are to
// have that were admitted before and wait for their devices.
func (a *actor) foundClaims() []*admission.Claim {
	var out []*admission.Claim
	for _, e := range a.entries {
		switch {
		case e.found != nil && e.found.Alive():
			out = append(out, found.Claim(e.found, e.record.Allocated))
		case e.state == held && e.why != nil && e.why.Code == messages.ReasonAllocating && e.admittedBefore():
			out = append(out, admission.NewClaim(e.record.Allocated.In(e.want.pod)))
		}
	}
	return out
}
