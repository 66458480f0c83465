// Package runtime is the actor "runtime". It reads the CRI, and sends each pod its facts and the actor pods the list of all.
//
// It has two phases. While connecting, it calls Version and Status at least once a second; while connected, it reads. Three
// things trigger a reading: a pod's request (ReadPod), an event of the CRI that hints at one pod, and the audit. The audit lists
// everything and finds pods that differ from their last reported facts. If the runtime has events, the audit is slow and only
// repairs missed ones; otherwise it runs every second. Each pod has one reading at a time, and facts that cannot have changed
// are not read again; the facts that the pod's own actors read at a start count as read (facts.StartFacts).
//
// It also collects garbage: dead containers and sandboxes beyond the configured limits, and log folders of pods that are gone.
// It never touches objects that no kubelet made.
package runtime

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/actors/runtime/readqueue"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// phase is the state of the connection to the runtime.
type phase string

const (
	connecting phase = "connecting"
	connected  phase = "connected"
)

// edges are the allowed transitions.
var edges = map[phase]phase{connecting: connected, connected: connecting}

type actor struct {
	opts      Options
	phase     phase
	link      link
	watch     watch
	audit     audits
	queue     *readqueue.Queue
	reported  map[string]*pod // by UID: the pods as last reported
	collector collector
	cidrs     cidrs

	leases leases
}

// pod is the last report to a pod.
type pod struct {
	facts messages.PodFacts
	sig   uint64 // of the lists behind the facts
}

func newActor(opts Options, nodeCIDRs *atomic.Pointer[string]) *actor {
	return &actor{
		opts: opts, phase: connecting, queue: readqueue.New(opts.MaxReads), reported: map[string]*pod{},
		link:      link{snapshot: Snapshot{Endpoint: opts.Endpoint, Hints: ByPolling}},
		collector: collector{readAt: map[string]time.Time{}}, cidrs: newCIDRs(opts.PodCIDR, nodeCIDRs),
	}
}

// Receive implements supervisors.Actor. It handles only the first message.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	if _, ok := msg.(messages.Started); !ok {
		ctx.Unhandled(msg)
		return
	}
	ctx.Become(a.connecting)
	a.check(ctx)
}

// become changes the phase; nothing else does.
func (a *actor) become(ctx supervisors.Context, to phase) {
	if edges[a.phase] != to {
		panic("runtime: no edge from " + string(a.phase) + " to " + string(to))
	}
	ctx.Log().Debug("phase transition", "from", a.phase, "to", to)
	a.phase = to
	a.queue.Open = to == connected
	switch to {
	case connecting:
		ctx.Become(a.connecting)
	case connected:
		ctx.Become(a.connected)
		a.audit.everything = true // pods may have missed changes
		a.watchAgain(ctx)
		a.queue.Rouse()
		a.queue.Share(shareAbove, a.audit.sequence+1)
		a.startAudit(ctx)
		a.planSurvey(ctx)
		a.pump(ctx)
		a.cidrs.actual, a.cidrs.link = "", a.cidrs.link+1 // the runtime may be another one now
		a.sendCIDRs(ctx)
	}
}

// connecting is the phase in which the runtime is checked until it answers. Requests are queued.
func (a *actor) connecting(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case checkResult:
		a.checkedConnecting(ctx, m)
	case checkDue:
		a.check(ctx)
	case auditDue, collectDue: // both restart with the connection
	default:
		a.always(ctx, msg)
	}
}

// connected is the phase in which the runtime answers.
func (a *actor) connected(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case checkResult:
		a.checkedConnected(ctx, m)
	case checkDue:
		a.check(ctx)
	case auditDue:
		a.startAudit(ctx)
	case collectDue:
		a.survey(ctx)
	default:
		a.always(ctx, msg)
	}
}

// always handles the messages common to both phases: requests, and results of work that began while connected.
func (a *actor) always(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.ReadPod:
		a.collector.readAt[m.UID] = ctx.Now()
		a.queue.Ask(m.UID)
		a.pump(ctx)
	case messages.KeepContainers:
		a.keep(ctx, m)
	case messages.ReclaimContainers:
		a.collector.reclaim = &m
		a.reclaimEnded(ctx)
	case messages.ServiceStarted: // the actor logs has lost its containers
		for _, p := range a.reported {
			ctx.Tell(messages.Logs, messages.ContainersChanged{Facts: p.facts})
		}
	case messages.GetAudit:
		a.sendState(ctx)
		a.audit.everything = true
		if a.phase == connected {
			a.startAudit(ctx)
		}
	case readDone:
		a.readEnded(ctx, m)
	case startsEnded:
		a.queue.Settled(m.uid)
		a.pump(ctx)
	case retryDue:
		a.queue.Rested(m.uid)
		a.pump(ctx)
	case auditResult:
		a.auditEnded(ctx, m)
	case eventsReceived:
		a.hinted(ctx, m)
	case waitDue:
		a.wait(ctx)
	case surveyResult:
		a.surveyEnded(ctx, m)
	case removalEnded:
		a.removedOne(ctx, m)
	case sandboxesLoaded:
		a.loadedSandboxes(ctx, m)
	case recordsDropped:
		a.onRecordsDropped(ctx, m)
	case leasesEnded:
		a.leasesFreed(ctx, m)
	case messages.NodeObserved:
		a.requestCIDRs(ctx, m)
	case cidrsSent:
		a.passedCIDRs(ctx, m)
	case cidrsDue:
		a.sendCIDRs(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// keep records the desired pods. A first message, or one that has read fewer sources than the last, comes from a restarted pods
// actor: it gets a full report at once, without waiting for the next audit.
func (a *actor) keep(ctx supervisors.Context, m messages.KeepContainers) {
	anew, all := !a.collector.received || a.collector.complete && !m.Heard, !a.collector.complete && m.Heard
	a.collector.keep(m)
	if all && a.phase == connected { // remains of a previous agent's pods need not wait
		a.collector.goneOnly = true
		a.survey(ctx)
	}
	a.reclaimEnded(ctx) // eviction's earlier request
	if !anew {
		return
	}
	a.sendState(ctx)
	a.audit.everything = true
	if a.phase == connected {
		a.startAudit(ctx)
	}
}

// Results and timers of readings.
type (
	readDone struct {
		uid  string
		read podRead
		busy bool // not read: the pod's own start operations are in flight
		err  error
	}
	startsEnded struct{ uid string }
	retryDue    struct{ uid string }
)

const (
	readTimeout = 2 * time.Minute
	// settleTimeout exceeds every start operation; the wait is repeated after it.
	settleTimeout = 10 * time.Minute
)

// shareAbove is the number of due pods that are listed individually. More pods, as after a start of the agent or while a node is
// drained, share the lists of one audit.
const shareAbove = 4

func (a *actor) pump(ctx supervisors.Context) {
	if !a.audit.split && a.queue.Share(shareAbove, a.audit.sequence+1) {
		a.startAudit(ctx)
	}
	readAt := ctx.Now()
	for {
		uid, from, ok := a.queue.Next(readAt)
		if !ok {
			return
		}
		var was messages.PodFacts
		if p := a.reported[uid]; p != nil {
			was = p.facts
		}
		ctx.Do(supervisors.Work{Name: "read pod " + uid, Pod: uid, Timeout: readTimeout, Run: func(ctx context.Context) any {
			if from == nil && len(a.opts.Operations.InFlight(cri.StartPrefix(uid))) > 0 {
				return readDone{uid: uid, busy: true}
			}
			started := a.opts.Started.Take(uid)
			was.Sandboxes = slices.Concat(started.Sandboxes, was.Sandboxes)
			was.Containers = slices.Concat(started.Containers, was.Containers)
			read, err := readPod(ctx, a.opts.CRI, uid, readAt, from, was)
			return readDone{uid: uid, read: read, err: err}
		}})
	}
}

// warnRest is the rest after the third consecutive failure to read a pod. A warning is logged then, once.
const warnRest = 4 * time.Second

// readEnded reports the facts to the pod, or schedules another reading.
func (a *actor) readEnded(ctx supervisors.Context, m readDone) {
	switch {
	case m.busy:
		a.queue.Busy(m.uid)
		ctx.Do(supervisors.Work{Name: "settle pod " + m.uid, Pod: m.uid, Timeout: settleTimeout,
			Run: func(ctx context.Context) any {
				// The next reading checks for itself, however the wait ended.
				_ = a.opts.Operations.Settle(ctx, cri.StartPrefix(m.uid))
				return startsEnded{m.uid}
			}})
	case m.err != nil:
		rest := a.queue.Failed(m.uid)
		level := slog.LevelDebug
		if rest == warnRest {
			level = slog.LevelWarn
		}
		ctx.Log().Log(context.Background(), level, "could not read a pod", "uid", m.uid, "error", m.err)
		ctx.After(rest, retryDue{m.uid})
		a.suspect(ctx, m.err)
	default:
		if m.read.odd != nil {
			ctx.Log().Warn("left out containers or sandboxes with malformed labels", "pod", m.uid, "error", m.read.odd)
		}
		a.queue.Done(m.uid)
		a.sendPod(ctx, m.read.facts, m.read.sig)
	}
	a.pump(ctx)
}

// sendPod sends a pod its facts and caches them. It forgets a pod that the CRI does not know.
func (a *actor) sendPod(ctx supervisors.Context, f messages.PodFacts, sig uint64) {
	f.Away = a.link.away
	switch {
	case len(f.Sandboxes) == 0 && len(f.Containers) == 0 && sig == 0:
		delete(a.reported, f.UID)
	default:
		a.reported[f.UID] = &pod{f, sig}
	}
	ctx.Tell(messages.Logs, messages.ContainersChanged{Facts: f})
	ctx.Tell(messages.PodAddress(f.UID), messages.PodObserved{Facts: f})
}
