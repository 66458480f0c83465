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

// admitNew decides about pods that are held for no other cause. Previously admitted pods come first, since their claims on the
// node count. Resizes of present pods follow. The others are decided one by one: static pods, then critical ones, then by age.
func (a *actor) admitNew(ctx supervisors.Context, fresh []*entry) {
	a.waiting.some = false
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
		claim := admission.NewClaim(e.wanted.pod)
		wait, refusal := a.decide(ctx, r, e, claim)
		if wait == nil && !refusal.Refused() {
			wait, refusal = a.allocate(ctx, e)
		}
		switch {
		case wait != nil:
			a.waiting.some = true
			allocating := wait.Code == messages.ReasonAllocating
			a.hold(ctx, e, *wait, allocating || wait.Code == messages.ReasonNodeUnknown) // transient
			// Room reserved for this pod is not available to the next.
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

// warnOfExcess warns of a pod that requests more than the machine has and runs all the same: without a cluster, requests are not
// compared with the capacity.
func warnOfExcess(ctx supervisors.Context, node *admission.Node, claim *admission.Claim) {
	if text := admission.Exceeds(node, claim); text != "" {
		ctx.Log().Warn("a pod requests more than this machine's allocatable resources; running it anyway",
			"pod", fullName(claim.Pod), "podUID", claim.Pod.UID, "asks", text)
		recordEvent(ctx, claim.Pod, messages.EventExceedsNode,
			"The pod asks for more than this node has for pods ("+text+"). It is run all the same, and may be short of it.")
	}
}

// admittedBefore reports whether the pod is over, parts of it exist, or the API server has its start. Such a pod is not admitted
// again.
func (e *entry) admittedBefore() bool {
	s := &e.wanted.pod.Status
	began := e.wanted.source == messages.APIServer && (final(s) || s.StartTime != nil)
	return e.record != (record{}) || began || e.audited != nil
}

// endedWithMachine reports whether a shutdown of the machine ended this static pod. No controller creates another one: it runs
// again with the next agent.
func (e *entry) endedWithMachine() bool {
	failed := e.record.Fail != nil && e.record.Fail.Reason == messages.ReasonTerminated
	return translate.IsStatic(e.wanted.pod) &&
		(failed || e.record.Final != nil && e.record.Final.Reason == messages.ReasonTerminated)
}

// admit starts the pod's actor. A pod that is Succeeded or Failed at the API server, and is unknown here, does not run again.
func (a *actor) admit(ctx supervisors.Context, e *entry) {
	if s := &e.wanted.pod.Status; e.wanted.source == messages.APIServer && final(s) && e.record.Final == nil {
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

// room is the capacity for new pods: now, after the end of the preempted pods, and without the ones of those that do not end.
type room struct {
	node         *admission.Node
	now          *admission.Ledger
	later, taken *admission.Ledger // nil if equal to now
	awaited      bool              // a pod waits for the end of deleted pods, which count as leaving, too
	// reserved are the claims of found pods, which may not be ended, and of pods for which others are ended.
	reserved []*admission.Claim
}

func (a *actor) newRoom(ctx supervisors.Context) *room {
	r := &room{node: a.node.admits(&a.opts.LocalNode, a.opts.Cluster), reserved: a.reservedClaims()}
	r.now = admission.NewLedger(slices.Concat(a.claims(nil), r.reserved)...)
	a.clear(ctx, r)
	return r
}

// clear computes the capacity after the end of the preempted pods and of the awaited ones.
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

// firstCome is the order in which simultaneous pods are admitted.
func firstCome(x, y *entry) int {
	rank := func(w *desiredPod) int {
		switch {
		case translate.IsStatic(w.pod):
			return 0
		case admission.Critical(w.pod):
			return 1
		default:
			return 2
		}
	}
	if byRank := cmp.Compare(rank(x.wanted), rank(y.wanted)); byRank != 0 || rank(x.wanted) == 0 {
		return byRank
	}
	return x.wanted.pod.CreationTimestamp.Compare(y.wanted.pod.CreationTimestamp.Time)
}

// decide returns a reason to wait, a refusal for good, or neither to admit the pod. A static pod is never refused for good: no
// controller would create another one.
func (a *actor) decide(ctx supervisors.Context, r *room, e *entry, claim *admission.Claim) (*messages.Reason,
	admission.Refusal) {
	w := e.wanted
	static := translate.IsStatic(w.pod)
	if a.node.shutdown {
		if static {
			return &messages.Reason{Code: messages.ReasonNodeShutdown, Message: messages.NodeShutdownCondition},
				admission.Refusal{}
		}
		return nil, admission.Refusal{Reason: messages.ReasonNodeShutdown, Message: messages.NodeShutdownMessage}
	}
	if !static && a.node.mustWait(ctx.Now()) {
		return &messages.Reason{Code: messages.ReasonNodeUnknown,
			Message: "this node's object, whose labels and taints decide, was not read yet"}, admission.Refusal{}
	}
	refusal := admission.Admit(r.node, r.now, claim)
	if !refusal.Refused() {
		return nil, refusal
	}
	if !static && a.node.received && a.mustReread(ctx, e, refusal) {
		return &messages.Reason{Code: messages.ReasonNodeUnknown,
			Message: "this node's object is being read again, because by its last state the pod would be refused: " +
				refusal.Message}, admission.Refusal{}
	}
	if len(refusal.Shortages) > 0 && r.taken != nil && !admission.Admit(r.node, r.taken, claim).Refused() {
		ctx.Log().Warn("admitted a critical pod, although terminating pods still hold the resources that it needs",
			"pod", fullName(w.pod), "podUID", w.pod.UID, "missing", refusal.Message)
		return nil, admission.Refusal{}
	}
	if r.later != nil && !admission.Admit(r.node, r.later, claim).Refused() {
		return a.makingRoom(ctx, refusal.Message), admission.Refusal{}
	}
	if len(refusal.Shortages) > 0 {
		if a.preempt(ctx, r, w, claim) {
			return a.makingRoom(ctx, refusal.Message), admission.Refusal{}
		}
		if !static {
			refusal = admission.Refusal{Reason: admission.ReasonUnexpected,
				Message: "no pods that may be ended for it hold enough: " + refusal.Message}
		}
	}
	byLabels := refusal.Reason == admission.ReasonNodeAffinity || refusal.Reason == admission.ReasonTaintToleration
	if static || byLabels && !a.node.received {
		return &messages.Reason{Code: refusal.Reason, Message: refusal.Message, Cause: refusal.Cause}, admission.Refusal{}
	}
	return nil, refusal
}

// refuse gives a pod its final status. From then on it counts as finished: it never runs, and ends when it is deleted.
func (a *actor) refuse(ctx supervisors.Context, e *entry, r admission.Refusal) {
	now, pod := metav1.NewTime(ctx.Now()), e.wanted.pod
	status := &v1.PodStatus{
		Phase: v1.PodFailed, Reason: r.Reason, Message: r.StatusMessage(), StartTime: &now, QOSClass: translate.QOSClass(pod),
		ObservedGeneration: pod.Generation,
	}
	ctx.Log().Warn("rejected a pod", "pod", fullName(pod), "podUID", e.uid, "reason", r.Reason, "message", r.Message)
	recordWait(ctx, pod, messages.Reason{Code: r.Reason, Message: r.Message, Cause: r.Cause})
	metrics.Refused(r.Reason)
	cause := r.Cause
	cause.Text = cmp.Or(cause.Text, r.Message)
	a.keep(ctx, e, record{Final: status, Cause: cause})
	a.admit(ctx, e)
	e.status = status
	a.sendStatus(ctx, e)
}

// waitState is the state of pods that wait for room, for the node or for a resize.
type waitState struct {
	some    bool      // there are such pods
	at      time.Time // next reconsideration, when others should have ended
	trigger string    // the cause of the present reconsideration, for the metrics of resizes
}

// reconsider decides again about the pods that were not admitted.
func (a *actor) reconsider(ctx supervisors.Context) {
	if a.waiting.some {
		a.reconcile(ctx)
	}
}

// claims returns the claims of the present pods on the node, until none of their containers runs. Pods that match but are left
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

// claimOf returns the claim of a pod. An orphan has the claim that was found.
func (a *actor) claimOf(e *entry) *admission.Claim {
	if e.claim == nil || e.claim.Pod != e.admitted && !e.orphan() {
		e.claim = admission.NewClaim(e.admitted)
	}
	return e.claim
}

// holdsRoom reports whether a present pod still holds its claim.
func (e *entry) holdsRoom() bool {
	return e.lingers || (e.runs() || e.ends()) && e.record.Final == nil && !final(e.status)
}

// reservedClaims returns the claims of pods that were found running and that no source has listed yet, and of previously admitted
// pods that wait for their devices.
func (a *actor) reservedClaims() []*admission.Claim {
	var out []*admission.Claim
	for _, e := range a.entries {
		switch {
		case e.audited != nil && e.audited.Alive():
			out = append(out, found.Claim(e.audited, e.record.Allocated))
		case e.state == held && e.why != nil && e.why.Code == messages.ReasonAllocating && e.admittedBefore():
			out = append(out, admission.NewClaim(e.record.Allocated.In(e.wanted.pod)))
		}
	}
	return out
}
