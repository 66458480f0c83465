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

// EventSource is the source of events; *cri.Client implements it.
type EventSource interface {
	// GetContainerEvents calls opened after it has subscribed, and event for each event. It returns a non-nil error when the
	// subscription ends.
	GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error
	// Ends reports whether this process stops or removes the container or sandbox with this ID, or has just done so. With
	// removed, it is not asked again.
	Ends(id string, removed bool) bool
}

// Events is the process's subscription to the CRI's events. It outlives the actor, so that no event is missed during a restart
// of the actor. It keeps only the set of pods with an ended or removed object: events are hints, and the facts are read from the
// CRI. It is safe for concurrent use.
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
	expected bool // a start, or an end that the agent itself called for
	pods     map[string]bool
}

// Batch holds the events since the last batch.
type Batch struct {
	// Opened is true if a subscription began: earlier changes must be read.
	Opened bool
	// Ended is the reason for the subscription's end; nil while it lasts. The next Wait subscribes again.
	Ended error
	// Expected is true if containers were started, or ended by this process: the actors of their pods know that already.
	Expected bool
	// Pods are the sorted UIDs of the pods with an ended or removed object.
	Pods []string
}

// NewEvents returns a subscription that begins with the first Wait. A panic in it is logged and ends it.
func NewEvents(source EventSource, log *slog.Logger) *Events {
	ctx, cancel := context.WithCancel(context.Background())
	return &Events{
		source: source, log: log, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		pods: map[string]bool{},
	}
}

// Wait blocks until there are events, and takes them. It subscribes if no subscription is running. When ctx ends first, it
// returns an empty batch and takes nothing. Only one goroutine may wait at a time.
func (e *Events) Wait(ctx context.Context) Batch {
	for {
		if b, ok := e.take(ctx); ok {
			return b
		}
		select {
		case <-e.wake:
			if ctx.Err() != nil {
				e.note(func() {}) // the wake-up was for the next waiter
			}
		case <-ctx.Done():
			return Batch{}
		}
	}
}

// Subscribed reports whether a subscription is open, so that the next Wait returns new events.
func (e *Events) Subscribed() bool {
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

// take returns the batch, if there is one.
func (e *Events) take(ctx context.Context) (Batch, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil {
		return Batch{}, true
	}
	if e.opened || e.ended != nil || e.expected || len(e.pods) > 0 {
		b := Batch{e.opened, e.ended, e.expected, slices.Sorted(maps.Keys(e.pods))}
		e.opened, e.ended, e.expected = false, nil, false
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

// note changes the batch and wakes the waiter.
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

// event records objects that ended or were removed. A start, or an end that this process called for, is known to the pod's own
// actors. Other actors learn of it from the next audit, which is then brought forward.
func (e *Events) event(ev *runtimeapi.ContainerEventResponse) {
	removed := false
	switch ev.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		e.note(func() { e.expected = true })
		return
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		removed = true
	default:
		return
	}
	if e.source.Ends(ev.GetContainerId(), removed) {
		e.note(func() { e.expected = true })
		return
	}
	// An object removed with its sandbox has no owner in its event; the sandbox's end was reported before.
	if owner, err := facts.OwnerOf(ev.GetPodSandboxStatus().GetLabels()); err == nil {
		e.note(func() { e.pods[owner.UID] = true })
	}
}

// watch is the state of the subscription to events.
type watch struct {
	waiting  bool // a worker is waiting for events
	failures int
}

type (
	eventsReceived struct{ batch Batch }
	waitDue        struct{}
)

// waitTimeout ends a wait without events; the next one follows.
const waitTimeout = 10 * time.Minute

// subscribeRetry is the back-off of subscriptions that end although the runtime is healthy.
var subscribeRetry = backoff.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second}

// watchAgain starts to use events after the runtime connects, or this actor restarts: then a predecessor's subscription may be
// open.
func (a *actor) watchAgain(ctx supervisors.Context) {
	a.watch.failures = 0
	if a.opts.Events != nil && a.opts.Events.Subscribed() {
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
		m := eventsReceived{a.opts.Events.Wait(ctx)}
		supervisors.Awaited(ctx)
		return m
	}})
}

// hinted queues readings of the pods with events.
func (a *actor) hinted(ctx supervisors.Context, m eventsReceived) {
	a.watch.waiting = false
	for _, uid := range m.batch.Pods {
		a.queue.Ask(uid)
	}
	a.pump(ctx)
	if m.batch.Expected && !a.audit.split { // an audit pod by pod is too expensive for that
		a.auditAfter(ctx, a.opts.StartedPeriod)
	}
	switch {
	case m.batch.Ended != nil:
		a.unsubscribed(ctx, m.batch.Ended)
		return
	case m.batch.Opened:
		a.setHints(ByEvents)
		// Changes before the subscription are read now. Another audit soon after catches changes that occurred while the runtime
		// was registering the subscription.
		if !a.audit.running {
			a.startAudit(ctx)
		}
		a.auditAfter(ctx, a.opts.PollPeriod)
	case len(m.batch.Pods) > 0:
		a.watch.failures = 0
	}
	a.wait(ctx)
}

// unsubscribed falls back to polling until there are events again.
func (a *actor) unsubscribed(ctx supervisors.Context, err error) {
	a.setHints(ByPolling)
	if cri.IsUnimplemented(err) {
		// Not retried before the next connection: only another runtime can support events.
		ctx.Log().Info("the container runtime does not support events; polling it instead", "period", a.opts.PollPeriod)
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
