package runtime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/runtime/readqueue"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// audits is the state of the audit.
type audits struct {
	running      bool
	sequence     uint64    // of the latest audit
	next         time.Time // when the next one begins at the latest; zero: not planned
	everything   bool      // report to every pod, changed or not
	reportedAll  time.Time
	split        bool              // the last lists were too large, so pods were listed one by one
	err          error             // of the last audit; nil when it succeeded, or none has ended
	lastReported map[string]uint64 // the last RuntimeAudited: signatures by UID
	timer        supervisors.Timer
	last         time.Time
}

type (
	auditDue    struct{}
	auditResult struct {
		sequence uint64
		readAt   time.Time
		pods     map[string]*readqueue.PodListing
		only     map[string]bool // the listed UIDs; nil: all
		starting map[string]bool // UIDs with start operations in flight: their listing may be incomplete
		err      error
	}
)

const (
	auditTimeout = 2 * time.Minute
	// splitPeriod is the minimum interval between audits that list pods one by one.
	splitPeriod = 10 * time.Second
	// staleAfter is the number of periods without a successful audit after which the lists are stale. With the default period of
	// a minute that is three minutes, as for the kubelet's PLEG.
	staleAfter = 3
)

func (a *actor) startAudit(ctx supervisors.Context) {
	if a.audit.running {
		a.audit.next = ctx.Now() // run another one afterwards
		return
	}
	supervisors.Cancel(a.audit.timer)
	a.audit.running, a.audit.next = true, time.Time{}
	a.audit.sequence++
	sequence := a.audit.sequence
	readAt, uids := ctx.Now(), a.uids()
	ctx.Do(supervisors.Work{Name: "audit", Timeout: auditTimeout, Run: func(ctx context.Context) any {
		return a.auditAll(ctx, uids, sequence, readAt)
	}})
}

// auditAfter schedules an audit after d at the latest. Repeated calls until then share one audit.
func (a *actor) auditAfter(ctx supervisors.Context, d time.Duration) {
	at := ctx.Now().Add(d)
	if !a.audit.next.IsZero() && !at.Before(a.audit.next) {
		return
	}
	a.audit.next = at
	if !a.audit.running {
		supervisors.Cancel(a.audit.timer)
		a.audit.timer = ctx.After(d, auditDue{})
	}
}

// auditAll lists sandboxes and containers. It watches for starts from before the first list until after the second. The listing
// of every other pod is therefore complete, even if its sandbox was made between the two.
func (a *actor) auditAll(ctx context.Context, uids []string, sequence uint64, readAt time.Time) auditResult {
	m := auditResult{sequence: sequence, readAt: readAt, pods: map[string]*readqueue.PodListing{}, starting: map[string]bool{}}
	startedMeanwhile := a.opts.Operations.Watch()
	all, only, err := a.listAll(ctx, uids)
	for _, key := range startedMeanwhile() {
		if uid, ok := cri.StartsPod(key); ok {
			m.starting[uid] = true
		}
	}
	if err != nil {
		m.err = err
		return m
	}
	m.only = only
	for uid, l := range all.ByPod() {
		m.pods[uid] = &readqueue.PodListing{Listing: l, Sig: signature(l), ReadAt: readAt}
	}
	return m
}

// uids returns the UIDs of all known pods, whether or not the runtime has objects of them.
func (a *actor) uids() []string {
	w := a.collector.desired()
	for uid := range a.reported {
		w.uids[uid] = true
	}
	return slices.Collect(maps.Keys(w.uids))
}

// judgeAudit reports when the runtime's lists become stale, and when they recover.
func (a *actor) judgeAudit(ctx supervisors.Context) {
	s := &a.link.snapshot
	last, stale := a.audit.last, ""
	if last.Before(s.Since) {
		last = s.Since
	}
	if limit := staleAfter * a.opts.AuditPeriod; ctx.Now().Sub(last) > limit {
		stale = fmt.Sprintf("the container runtime's lists are stale: none could be made since %s (limit: %s)",
			last.Format(time.RFC3339), limit)
		if a.audit.err != nil {
			stale += ": " + a.audit.err.Error()
		}
	}
	if stale == s.Stale {
		return
	}
	switch {
	case s.Stale == "":
		ctx.Log().Warn("the container runtime returns stale lists", "reason", stale)
	case stale == "":
		ctx.Log().Info("the container runtime's lists are current again")
	}
	s.Stale = stale
	a.publish()
	a.sendState(ctx)
}

// auditEnded queues readings of the pods that differ from their last report, and plans the next audit.
func (a *actor) auditEnded(ctx supervisors.Context, m auditResult) {
	a.audit.running = false
	if a.phase != connected {
		a.audit.next = time.Time{}
		return
	}
	a.queue.Shared(m.sequence, m.part)
	defer a.planAudit(ctx)
	a.audit.err = m.err
	if m.err != nil {
		ctx.Log().Debug("audit failed", "error", m.err)
		if !a.audit.split {
			a.auditAfter(ctx, a.opts.StartedPeriod)
		}
		a.suspect(ctx, m.err)
		a.pump(ctx)
		return
	}
	switch split := m.only != nil; {
	case split && !a.audit.split:
		ctx.Log().Warn("the container runtime's lists do not fit into one message; pods are listed one by one", "pods",
			len(m.pods))
	case !split && a.audit.split:
		ctx.Log().Info("the container runtime's lists fit into one message again")
	}
	a.audit.split = m.only != nil
	metrics.Relisted(a.link.snapshot.Audited, m.readAt, ctx.Now())
	// The end of the lists counts for staleness, because listing pod by pod takes long.
	a.audit.last, a.link.snapshot.Audited = ctx.Now(), m.readAt
	a.publish()
	a.judgeAudit(ctx)
	all := a.audit.everything || m.readAt.Sub(a.audit.reportedAll) >= a.opts.AuditPeriod
	if all {
		a.audit.everything, a.audit.reportedAll = false, m.readAt
		a.countSandboxes(ctx, m)
		a.dropRecords(ctx, m)
	}
	a.comparePods(ctx, m, all)
	if m.only == nil {
		a.opts.Started.Keep(func(uid string) bool { return m.pods[uid] != nil || m.starting[uid] })
	}
	if len(m.starting) > 0 && !a.audit.split { // as after any start
		a.auditAfter(ctx, a.opts.StartedPeriod)
	}
	a.sendState(ctx)
	a.sendAudited(ctx, m, all)
	a.pump(ctx)
}

// part returns the listing of a pod; nil if it is unknown or may be incomplete.
func (m auditResult) part(uid string) *readqueue.PodListing {
	switch l := m.pods[uid]; {
	case m.err != nil || m.starting[uid] || m.only != nil && !m.only[uid]:
		return nil
	case l == nil:
		return &readqueue.PodListing{ReadAt: m.readAt}
	default:
		return l
	}
}

// planAudit schedules the next audit.
func (a *actor) planAudit(ctx supervisors.Context) {
	if a.audit.running {
		return // it plans the next one when it ends
	}
	if next := a.audit.next; !next.IsZero() && !next.After(ctx.Now()) {
		a.startAudit(ctx)
		return
	}
	period := a.opts.AuditPeriod
	if a.link.snapshot.Hints == ByPolling {
		period = a.opts.PollPeriod
	}
	if next := a.audit.next; !next.IsZero() {
		period = min(period, next.Sub(ctx.Now()))
	}
	if a.audit.split {
		period = max(period, splitPeriod)
	}
	a.audit.next = time.Time{}
	a.auditAfter(ctx, period)
}

// comparePods reports to pods directly where the audit suffices, and queues readings of the others. If all is true, it also
// reports to unchanged pods.
func (a *actor) comparePods(ctx supervisors.Context, m auditResult, all bool) {
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		l, p := m.pods[uid], a.reported[uid]
		switch {
		case m.starting[uid] || a.newer(uid, m.readAt):
		case p == nil || p.sig != l.Sig:
			a.queue.AskFrom(uid, l)
		case all && !a.queue.Pending(uid):
			// The lists show the same objects in the same states, so the facts hold as of now.
			f := p.facts
			f.ReadAt = m.readAt
			a.sendPod(ctx, f, p.sig)
		}
	}
	absent := map[string]bool{}
	for uid := range a.reported {
		absent[uid] = true
	}
	if all {
		maps.Copy(absent, a.collector.desiredUIDs)
	}
	for _, uid := range slices.Sorted(maps.Keys(absent)) {
		nothing := m.pods[uid] == nil && (m.only == nil || m.only[uid]) && !m.starting[uid]
		if nothing && !a.newer(uid, m.readAt) && !a.queue.Pending(uid) {
			a.sendPod(ctx, messages.PodFacts{UID: uid, ReadAt: m.readAt}, 0)
		}
	}
}

// newer reports whether the pod was read after the audit began.
func (a *actor) newer(uid string, readAt time.Time) bool {
	p := a.reported[uid]
	return p != nil && p.facts.ReadAt.After(readAt)
}

// sendAudited sends pods the list of all pods, if it has changed or all is true.
func (a *actor) sendAudited(ctx supervisors.Context, m auditResult, all bool) {
	now := make(map[string]uint64, len(m.pods))
	for uid, l := range m.pods {
		now[uid] = l.Sig
	}
	if !all && maps.Equal(now, a.audit.lastReported) {
		return
	}
	a.audit.lastReported = now
	out := messages.RuntimeAudited{ReadAt: m.readAt}
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		light, _ := m.pods[uid].Light(uid, m.readAt) // malformed objects are reported when the pod is read
		out.Pods = append(out.Pods, light)
	}
	ctx.Tell(messages.Pods, out)
}
