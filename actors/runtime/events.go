package runtime

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// EventSource is where events come from; *cri.Client is one.
type EventSource interface {
	// GetContainerEvents calls opened when it has subscribed and event for each event, and returns, always with an
	// error, when the subscription ends.
	GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error
}

// Events is the process's subscription to the CRI's events. It outlives the actor, so that nothing is missed while that
// is restarted. It keeps only which pods something ended or was removed of, each once, however many events there were:
// events are hints, and what is true is read. Safe for concurrent use.
type Events struct {
	source EventSource
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}

	mu       sync.Mutex
	running  bool
	standing bool // opened and not ended
	opened   bool
	ended    error
	started  bool // a container was
	pods     map[string]bool
}

// Batch is what happened since the last one.
type Batch struct {
	// Opened says that a subscription began: what was before it is to be read.
	Opened bool
	// Ended is why the subscription ended; nil while it lasts. The next Wait begins another.
	Ended error
	// Started says that containers were started.
	Started bool
	// Pods are the UIDs of pods of which something ended or was removed. Sorted.
	Pods []string
}

// NewEvents makes a subscription that begins with the first Wait. A panic in it is logged, and ends the subscription.
func NewEvents(source EventSource, log *slog.Logger) *Events {
	ctx, cancel := context.WithCancel(context.Background())
	return &Events{
		source: source, log: log, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		pods: map[string]bool{},
	}
}

// Wait waits until there is something, and takes it; it begins a subscription where none runs. When ctx ends before, it
// returns an empty batch and takes nothing. Only one may wait at a time.
func (e *Events) Wait(ctx context.Context) Batch {
	for {
		if b, ok := e.take(ctx); ok {
			return b
		}
		select {
		case <-e.wake:
			if ctx.Err() != nil {
				e.note(func() {}) // it was for the one who waits after this one
			}
		case <-ctx.Done():
			return Batch{}
		}
	}
}

// Standing says that a subscription stands now: what happens is told to the next Wait.
func (e *Events) Standing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.standing
}

// Close ends the subscription for good and waits for its end.
func (e *Events) Close() {
	e.mu.Lock()
	e.cancel()
	e.mu.Unlock()
	e.done.Wait()
}

// take is the batch when there is one.
func (e *Events) take(ctx context.Context) (Batch, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil {
		return Batch{}, true
	}
	if e.opened || e.ended != nil || e.started || len(e.pods) > 0 {
		b := Batch{e.opened, e.ended, e.started, slices.Sorted(maps.Keys(e.pods))}
		e.opened, e.ended, e.started = false, nil, false
		clear(e.pods)
		return b, true
	}
	if !e.running {
		if e.ctx.Err() != nil {
			return Batch{Ended: errClosed}, true
		}
		e.running = true
		e.done.Go(e.run)
	}
	return Batch{}, false
}

var errClosed = errors.New("the subscription is closed")

func (e *Events) run() {
	err := guard.Call(e.log, "the subscription to the runtime's events", func() error {
		return e.source.GetContainerEvents(e.ctx, func() { e.note(func() { e.opened, e.standing = true, true }) }, e.event)
	})
	e.note(func() { e.running, e.standing, e.ended = false, false, err })
}

// note changes the batch and wakes the one who waits.
func (e *Events) note(change func()) {
	func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		change()
	}()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// event notes what ended or was removed. What was created or started was so by the pod's own actor, which knows; others learn
// of it by the next audit, which then comes soon.
func (e *Events) event(ev *runtimeapi.ContainerEventResponse) {
	switch ev.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		e.note(func() { e.started = true })
		return
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
	default:
		return
	}
	// What is gone together with its sandbox tells no more whose it was: the sandbox' end was told before.
	if owner, err := facts.OwnerOf(ev.GetPodSandboxStatus().GetLabels()); err == nil {
		e.note(func() { e.pods[owner.UID] = true })
	}
}

// watch is the state of the subscription to events.
type watch struct {
	waiting  bool // a worker waits for events
	failures int
}

type (
	happened struct{ batch Batch }
	waitDue  struct{}
)

// waitTimeout ends a wait for events that do not come; another begins.
const waitTimeout = 10 * time.Minute

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
		a.queue.Ask(uid)
	}
	a.pump(ctx)
	if m.batch.Started && !a.audit.split { // pods that are listed one by one cost too much for that
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
		if !a.audit.running {
			a.startAudit(ctx)
		}
		a.auditAfter(ctx, a.opts.PollPeriod)
	case len(m.batch.Pods) > 0:
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
