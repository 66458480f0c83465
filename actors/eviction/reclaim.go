package eviction

import (
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// reclaimRun is a reclaim of unused objects, service after service. Images come after containers, which may be their last users.
type reclaimRun struct {
	by         Signal
	rest       []messages.Address // the current service and the next ones
	generation int                // counts requests: messages of an earlier one are dropped
	timer      supervisors.Timer
	// most is the most that was left of the signal since the first request.
	most int64
}

// reclaim starts to remove unused objects on a file system.
func (a *actor) reclaim(ctx supervisors.Context, act action) {
	if len(a.taking.rest) > 0 {
		return
	}
	a.taking = reclaimRun{by: act.by.signal, generation: a.taking.generation, most: a.readings[act.by.signal].Available}
	if act.on.dead() {
		a.taking.rest = append(a.taking.rest, messages.Runtime)
	}
	if act.on.images {
		a.taking.rest = append(a.taking.rest, messages.Images)
	}
	a.reclaimNext(ctx)
}

// reclaimNext asks the next service, and measures after the last.
func (a *actor) reclaimNext(ctx supervisors.Context) {
	t := &a.taking
	if t.generation++; t.timer != nil {
		t.timer.Cancel()
	}
	if len(t.rest) == 0 {
		a.reclaimed = true
		a.measureAgain(ctx)
		return
	}
	t.timer = ctx.After(reclaimTimeout, reclaimDue{t.generation})
	a.ask(ctx)
}

func (a *actor) ask(ctx supervisors.Context) {
	if a.taking.rest[0] == messages.Runtime {
		ctx.Tell(messages.Runtime, messages.ReclaimContainers{})
	} else {
		ctx.Tell(messages.Images, messages.ReclaimImages{})
	}
}

// askAgain repeats the request to a restarted service, which has forgotten it.
func (a *actor) askAgain(ctx supervisors.Context, service messages.Address) {
	if t := &a.taking; len(t.rest) > 0 && t.rest[0] == service {
		a.ask(ctx)
	}
}

// reclaimEnded handles an answer. It ignores late ones.
func (a *actor) reclaimEnded(ctx supervisors.Context, from messages.Address) {
	if t := &a.taking; len(t.rest) > 0 && t.rest[0] == from {
		t.rest = t.rest[1:]
		a.reclaimNext(ctx)
	}
}

// onReclaimDue asks the next service after a timeout. While more and more is left of the short resource, it waits on: there may
// be a lot to remove.
func (a *actor) onReclaimDue(ctx supervisors.Context, m reclaimDue) {
	t := &a.taking
	if m.generation != t.generation || len(t.rest) == 0 {
		return
	}
	if now := a.readings[t.by].Available; now > t.most {
		t.most = now
		t.timer = ctx.After(reclaimTimeout, m)
		return
	}
	ctx.Log().Warn("reclaiming a node resource timed out; eviction continues", "resource", t.rest[0])
	t.rest = t.rest[1:]
	a.reclaimNext(ctx)
}
