// Package runtime is the actor "runtime": it tells each pod what the CRI says of it, and pods what the CRI holds.
//
// It has two phases. While connecting it asks Version and Status again and again, at least once a second; while
// connected it reads. What to read it learns in three ways: a pod asks (ReadPod), an event of the CRI hints at one pod,
// or the audit, which lists everything, finds a pod that differs from what was told of it last. Where the runtime has
// events the audit is slow and only repairs what they missed; where it has none, the audit runs every second.
// Whatever the way, a pod is read by one reading at a time, and what cannot have changed is not asked for again.
//
// It also collects what is dead: containers and sandboxes beyond the configured limits, and log folders of pods that
// are gone. What no kubelet made is never touched.
package runtime

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/actors/runtime/readqueue"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// phase is whether the runtime can be worked with.
type phase string

const (
	connecting phase = "connecting"
	connected  phase = "connected"
)

// edges are the transitions there are.
var edges = map[phase]phase{connecting: connected, connected: connecting}

type actor struct {
	opts  Options
	phase phase
	link  link
	watch watch
	audit audits
	queue *readqueue.Queue
	known map[string]*pod // by UID: what was told last
	bin   collector
	cidrs cidrs

	leases leases
}

// pod is what a pod was told last.
type pod struct {
	facts messages.PodFacts
	sig   uint64 // of the lists that the facts are made of
}

func newActor(opts Options, nodeCIDRs *atomic.Pointer[string]) *actor {
	return &actor{
		opts: opts, phase: connecting, queue: readqueue.New(opts.MaxReads), known: map[string]*pod{},
		link: link{snapshot: Snapshot{Endpoint: opts.Endpoint, Hints: ByPolling}},
		bin:  collector{asked: map[string]time.Time{}}, cidrs: newCIDRs(opts.PodCIDR, nodeCIDRs),
	}
}

// Receive implements supervisors.Actor; it is the behaviour before the first message only.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	if _, ok := msg.(messages.Started); !ok {
		ctx.Unhandled(msg)
		return
	}
	ctx.Become(a.connecting)
	a.check(ctx)
}

// become is the one place where the phase changes.
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
		a.audit.everything = true // pods may have missed what happened
		a.watchAgain(ctx)
		a.queue.Rouse()
		a.queue.Share(shareAbove, a.audit.sequence+1)
		a.startAudit(ctx)
		a.planSurvey(ctx)
		a.pump(ctx)
		a.cidrs.actual, a.cidrs.link = "", a.cidrs.link+1 // the runtime that is connected now may be another
		a.tellCIDRs(ctx)
	}
}

// connecting is the phase in which the runtime is asked until it answers. What is asked for is kept.
func (a *actor) connecting(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case checked:
		a.checkedConnecting(ctx, m)
	case checkDue:
		a.check(ctx)
	case auditDue, collectDue: // both begin anew with the connection
	default:
		a.always(ctx, msg)
	}
}

// connected is the phase in which the runtime answers.
func (a *actor) connected(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case checked:
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

// always handles what is the same in both phases: requests, and the ends of work that began while connected.
func (a *actor) always(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.ReadPod:
		a.bin.asked[m.UID] = ctx.Now()
		a.queue.Ask(m.UID)
		a.pump(ctx)
	case messages.KeepContainers:
		a.keep(ctx, m)
	case messages.ReclaimContainers:
		a.bin.reclaim = &m
		a.reclaimEnded(ctx)
	case messages.ServiceStarted: // logs knows of no container
		for _, p := range a.known {
			ctx.Tell(messages.Logs, messages.ContainersChanged{Facts: p.facts})
		}
	case messages.GetAudit:
		a.tellState(ctx)
		a.audit.everything = true
		if a.phase == connected {
			a.startAudit(ctx)
		}
	case readDone:
		a.readEnded(ctx, m)
	case settled:
		a.queue.Settled(m.uid)
		a.pump(ctx)
	case rested:
		a.queue.Rested(m.uid)
		a.pump(ctx)
	case audited:
		a.auditEnded(ctx, m)
	case happened:
		a.hinted(ctx, m)
	case waitDue:
		a.wait(ctx)
	case surveyed:
		a.surveyEnded(ctx, m)
	case removalEnded:
		a.removedOne(ctx, m)
	case sandboxesLoaded:
		a.loadedSandboxes(ctx, m)
	case leasesEnded:
		a.leasesFreed(ctx, m)
	case messages.NodeObserved:
		a.wantCIDRs(ctx, m)
	case cidrsPassed:
		a.passedCIDRs(ctx, m)
	case cidrsDue:
		a.tellCIDRs(ctx)
	default:
		ctx.Unhandled(msg)
	}
}

// keep notes who is wanted. The first word, and one that has heard less than the last, come from a pods that has just
// started: it is told everything, without waiting for the next audit.
func (a *actor) keep(ctx supervisors.Context, m messages.KeepContainers) {
	anew, all := !a.bin.known || a.bin.heard && !m.Heard, !a.bin.heard && m.Heard
	a.bin.keep(m)
	if all && a.phase == connected { // what an agent before this one left of pods that are gone need not wait
		a.bin.goneOnly = true
		a.survey(ctx)
	}
	a.reclaimEnded(ctx) // what eviction asked for before this was known
	if !anew {
		return
	}
	a.tellState(ctx)
	a.audit.everything = true
	if a.phase == connected {
		a.startAudit(ctx)
	}
}

// The results and timers of readings.
type (
	readDone struct {
		uid  string
		read podRead
		busy bool // not read: the pod's own start operations are in flight
		err  error
	}
	settled struct{ uid string }
	rested  struct{ uid string }
)

const (
	readTimeout = 2 * time.Minute
	// settleTimeout is longer than any start operation; the wait begins anew after it.
	settleTimeout = 10 * time.Minute
)

// shareAbove is how many pods make their own lists when they are to be read at one time. More than so many, after a start of
// the agent or when a node is emptied, are read from the lists of one audit.
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
		if p := a.known[uid]; p != nil {
			was = p.facts
		}
		ctx.Do(supervisors.Work{Name: "read pod " + uid, Pod: uid, Timeout: readTimeout, Run: func(ctx context.Context) any {
			if from == nil && len(a.opts.Operations.InFlight(cri.StartPrefix(uid))) > 0 {
				return readDone{uid: uid, busy: true}
			}
			read, err := readPod(ctx, a.opts.CRI, uid, readAt, from, was)
			return readDone{uid: uid, read: read, err: err}
		}})
	}
}

// warnRest is the rest after the third failure in a row to read a pod: then, and once, a person is told.
const warnRest = 4 * time.Second

// readEnded tells the pod, or sees to it that it is read later.
func (a *actor) readEnded(ctx supervisors.Context, m readDone) {
	switch {
	case m.busy:
		a.queue.Busy(m.uid)
		ctx.Do(supervisors.Work{Name: "settle pod " + m.uid, Pod: m.uid, Timeout: settleTimeout,
			Run: func(ctx context.Context) any {
				// Whatever the end of the wait, the next reading looks for itself.
				_ = a.opts.Operations.Settle(ctx, cri.StartPrefix(m.uid))
				return settled{m.uid}
			}})
	case m.err != nil:
		rest := a.queue.Failed(m.uid)
		level := slog.LevelDebug
		if rest == warnRest {
			level = slog.LevelWarn
		}
		ctx.Log().Log(context.Background(), level, "could not read a pod", "uid", m.uid, "error", m.err)
		ctx.After(rest, rested{m.uid})
		a.suspect(ctx, m.err)
	default:
		if m.read.odd != nil {
			ctx.Log().Warn("left out containers or sandboxes with malformed labels", "pod", m.uid, "error", m.read.odd)
		}
		a.queue.Done(m.uid)
		a.tellPod(ctx, m.read.facts, m.read.sig)
	}
	a.pump(ctx)
}

// tellPod tells a pod its facts and remembers them; a pod of which the CRI knows nothing is not remembered.
func (a *actor) tellPod(ctx supervisors.Context, f messages.PodFacts, sig uint64) {
	f.Away = a.link.away
	switch {
	case len(f.Sandboxes) == 0 && len(f.Containers) == 0 && sig == 0:
		delete(a.known, f.UID)
	default:
		a.known[f.UID] = &pod{f, sig}
	}
	ctx.Tell(messages.Logs, messages.ContainersChanged{Facts: f})
	ctx.Tell(messages.PodAddress(f.UID), messages.PodObserved{Facts: f})
}
