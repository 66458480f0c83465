package runtime

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/backoff"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// watch is the state of the subscription to events.
type watch struct {
	waiting  bool // a worker waits for events
	failures int
}

type (
	happened struct{ batch Batch }
	waitDue  struct{}
)

const (
	// waitTimeout ends a wait for events that do not come; another begins.
	waitTimeout = 10 * time.Minute
)

// subscribeRetry is the back-off of subscriptions that end though the runtime is well.
var subscribeRetry = backoff.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second}

// watchAgain begins to use events after the runtime has come, or come back, or this actor has: then a predecessor's
// subscription may stand.
func (a *actor) watchAgain(ctx supervisors.Context) {
	a.watch.failures = 0
	if a.opts.Events != nil && a.opts.Events.Standing() {
		a.setHints(ByEvents)
	}
	a.wait(ctx)
}

// wait waits for events, in a worker.
func (a *actor) wait(ctx supervisors.Context) {
	if a.opts.Events == nil || a.watch.waiting || a.phase != connected {
		return
	}
	a.watch.waiting = true
	ctx.Do(supervisors.Work{Name: "GetContainerEvents", Timeout: waitTimeout, Run: func(ctx context.Context) any {
		m := happened{a.opts.Events.Wait(ctx)}
		supervisors.Awaited(ctx)
		return m
	}})
}

// hinted has those pods read that something happened to.
func (a *actor) hinted(ctx supervisors.Context, m happened) {
	a.watch.waiting = false
	for _, uid := range m.batch.Pods {
		a.queue.ask(uid)
	}
	for _, id := range m.batch.Objects {
		if uid := a.ownerOf(id); uid != "" {
			a.queue.ask(uid)
		}
	}
	a.pump(ctx)
	if m.batch.Started {
		a.auditAfter(ctx, a.opts.StartedPeriod)
	}
	switch {
	case m.batch.Ended != nil:
		a.unsubscribed(ctx, m.batch.Ended)
		return
	case m.batch.Opened:
		a.setHints(ByEvents)
		// What happened before the subscription is read now. What happened while the runtime was only about to take it
		// on is caught by one more audit soon after.
		a.audit.soon = true
		a.startAudit(ctx)
	case len(m.batch.Pods)+len(m.batch.Objects) > 0:
		a.watch.failures = 0
	}
	a.wait(ctx)
}

// unsubscribed goes over to polling until there are events again.
func (a *actor) unsubscribed(ctx supervisors.Context, err error) {
	a.setHints(ByPolling)
	if cri.IsUnimplemented(err) {
		// Not tried again before the runtime has been away: only another one can have them.
		ctx.Log().Info("the container runtime has no events; it is asked for changes instead", "period", a.opts.PollPeriod)
	} else {
		ctx.Log().Debug("the container runtime's events ended", "error", err)
		a.watch.failures++
		ctx.After(subscribeRetry.After(a.watch.failures, 0), waitDue{})
		a.suspect(ctx, err)
	}
	if a.phase == connected {
		a.startAudit(ctx)
	}
}

func (a *actor) setHints(h Hints) {
	if a.link.snapshot.Hints != h {
		a.link.snapshot.Hints = h
		a.publish()
	}
}

// ownerOf is the UID of the pod that a container or sandbox is known to be of.
func (a *actor) ownerOf(id string) string {
	for uid, p := range a.known {
		for _, s := range p.facts.Sandboxes {
			if s.ID == id {
				return uid
			}
		}
		for _, c := range p.facts.Containers {
			if c.ID == id {
				return uid
			}
		}
	}
	return ""
}
