package runtime

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/facts"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// audits is the actor's book on the audit.
type audits struct {
	running    bool
	again      bool // asked for while one is under way
	soon       bool // the next one comes after PollPeriod, whatever the hints
	everything bool // tell every pod, whether it differs or not
	toldAll    time.Time
	told       map[string]uint64 // what RuntimeAudited said last: signatures by UID
	timer      supervisors.Timer
	last       time.Time
}

type (
	auditDue struct{}
	audited  struct {
		readAt   time.Time
		pods     map[string]*listed
		starting map[string]bool // UIDs with start operations in flight: their part may be half of it
		err      error
	}
)

const auditTimeout = 2 * time.Minute

// startAudit lists everything now.
func (a *actor) startAudit(ctx supervisors.Context) {
	if a.audit.running {
		a.audit.again = true
		return
	}
	if a.audit.timer != nil {
		a.audit.timer.Cancel()
		a.audit.timer = nil
	}
	a.audit.running = true
	readAt := ctx.Now()
	ctx.Do(supervisors.Work{Name: "audit", Timeout: auditTimeout, Run: func(ctx context.Context) any {
		return auditAll(ctx, a.opts.CRI, a.opts.Operations, readAt)
	}})
}

// auditAll makes the two lists. Which pods are being started is found out before, so that what the lists show of the
// others is whole.
func auditAll(ctx context.Context, c CRI, ops Operations, readAt time.Time) audited {
	m := audited{readAt: readAt, pods: map[string]*listed{}, starting: map[string]bool{}}
	for _, key := range ops.InFlight("") {
		if uid, _, ok := strings.Cut(key, startInfix); ok {
			m.starting[uid] = true
		}
	}
	all, err := listAll(ctx, c)
	if err != nil {
		m.err = err
		return m
	}
	for uid, l := range all.ByPod() {
		m.pods[uid] = &listed{l, signature(l), readAt}
	}
	return m
}

func listAll(ctx context.Context, c CRI) (facts.Listing, error) {
	sandboxes, err := c.ListPodSandbox(ctx, nil)
	if err != nil {
		return facts.Listing{}, err
	}
	containers, err := c.ListContainers(ctx, nil)
	return facts.Listing{Sandboxes: sandboxes, Containers: containers}, err
}

// auditEnded has those pods read that differ from what was told of them, and plans the next audit.
func (a *actor) auditEnded(ctx supervisors.Context, m audited) {
	a.audit.running = false
	if a.phase != connected {
		a.audit.again = false
		return
	}
	defer a.planAudit(ctx)
	if m.err != nil {
		ctx.Log().Debug("could not audit", "error", m.err)
		a.suspect(ctx, m.err)
		return
	}
	a.audit.last, a.link.snapshot.Audited = m.readAt, m.readAt
	a.publish()
	all := a.audit.everything || m.readAt.Sub(a.audit.toldAll) >= a.opts.AuditPeriod
	if all {
		a.audit.everything, a.audit.toldAll = false, m.readAt
	}
	a.comparePods(ctx, m, all)
	a.tellState(ctx)
	a.tellAudited(ctx, m, all)
	a.pump(ctx)
}

// planAudit sees to it that another follows.
func (a *actor) planAudit(ctx supervisors.Context) {
	if a.audit.again {
		a.audit.again = false
		a.startAudit(ctx)
		return
	}
	period := a.opts.AuditPeriod
	if a.audit.soon || a.link.snapshot.Hints == ByPolling {
		period = a.opts.PollPeriod
	}
	a.audit.soon = false
	a.audit.timer = ctx.After(period, auditDue{})
}

// comparePods tells pods from the audit what it can, and has the others read. all is whether those are told too that
// nothing happened to.
func (a *actor) comparePods(ctx supervisors.Context, m audited, all bool) {
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		l, p := m.pods[uid], a.known[uid]
		switch {
		case m.starting[uid] || a.newer(uid, m.readAt):
		case p == nil || p.sig != l.sig:
			a.queue.askFrom(uid, l)
		case all && !a.queue.pending(uid):
			// The lists show the same objects in the same states, so the facts hold as of now.
			f := p.facts
			f.ReadAt = m.readAt
			a.tellPod(ctx, f, p.sig)
		}
	}
	absent := map[string]bool{}
	for uid := range a.known {
		absent[uid] = true
	}
	if all {
		maps.Copy(absent, a.bin.wanted)
	}
	for _, uid := range slices.Sorted(maps.Keys(absent)) {
		if m.pods[uid] == nil && !m.starting[uid] && !a.newer(uid, m.readAt) && !a.queue.pending(uid) {
			a.tellPod(ctx, messages.PodFacts{UID: uid, ReadAt: m.readAt}, 0)
		}
	}
}

// newer says that the pod was read after the audit began.
func (a *actor) newer(uid string, readAt time.Time) bool {
	p := a.known[uid]
	return p != nil && p.facts.ReadAt.After(readAt)
}

// tellAudited tells pods what there is when that has changed since it was told, or when it is time.
func (a *actor) tellAudited(ctx supervisors.Context, m audited, all bool) {
	now := make(map[string]uint64, len(m.pods))
	for uid, l := range m.pods {
		now[uid] = l.sig
	}
	if !all && maps.Equal(now, a.audit.told) {
		return
	}
	a.audit.told = now
	out := messages.RuntimeAudited{ReadAt: m.readAt}
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		light, _ := m.pods[uid].Light(uid, m.readAt) // what is malformed is told when the pod is read
		out.Pods = append(out.Pods, light)
	}
	ctx.Tell(messages.Pods, out)
}
