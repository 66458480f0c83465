// Package events is the actor that writes Kubernetes Events. client-go's correlator counts, combines and limits them, with
// the kubelet's figures. The last ones are kept here, for "playlet events"; in a cluster they also wait in a bounded queue and
// go to the API server in batches.
//
// Nothing depends on Events: the queue is lost with the actor, and the log's last minute with the process. The queue holds a
// thousand Events, for an hour at most. Over the limit, it drops the oldest of the namespace and pod with the most.
//
// An event is recorded once for each time that it happens; adopting a container or joining a stop records none. Reasons and
// words are the kubelet's, since others read them.
package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/eventlog"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configure the actor. All fields but Client, AtStart, State and Random are required.
type Options struct {
	// Client writes Events, limited by eventRecordQPS and eventBurst. It is nil on a standalone node.
	Client corev1.EventsGetter
	// Log keeps the last ones on this node.
	Log *Log
	// NodeName is the host in the source of the Events.
	NodeName string
	// AtStart gives Events to record when the process starts; it may read files. nil: none.
	AtStart func() []messages.RecordEvent
	// State reports whether Events can be written; nil: it is not published.
	State *State
	// Busy reports whether pods wait for the runtime to start or stop them: Events wait then, for yieldFor at most, because they
	// cost the API server as much as the statuses that users wait for. nil: never.
	Busy func() bool
	// Random gives numbers in [0,1) for pauses; nil is math/rand's.
	Random func() float64
}

// Log keeps the last events of the node.
type Log = eventlog.Log

// OpenLog reads the events of an earlier process from the file. The log is usable even after an error.
func OpenLog(path string) (*Log, error) { return eventlog.Open(path) }

// yieldFor is the longest time for which an Event waits while pods wait for the runtime, and yieldPause how often that is
// looked at.
const yieldFor, yieldPause = 10 * time.Second, 500 * time.Millisecond

// New returns the constructor of the actor. The first actor of a process records the start of the agent.
func New(opts Options) supervisors.Constructor {
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	first := true
	return func(string) supervisors.Actor {
		a := &actor{opts: opts, queue: newQueue(opts.NodeName, opts.Client != nil), first: first}
		first = false
		return a
	}
}

type actor struct {
	opts    Options
	queue   *queue
	first   bool
	timer   supervisors.Timer
	stale   supervisors.Timer // when a refusal leaves health
	saving  bool              // a write of the log is due, or in progress
	dropped uint64            // as logged last
	refusal string            // as logged last
}

// pauseEnded ends a pause. refusalExpired ends the report of a refusal.
type (
	pauseEnded     struct{}
	refusalExpired struct{}
)

// foundAtStart are the Events of AtStart.
type foundAtStart []messages.RecordEvent

// save requests a write of the log to the disk. logSaved is its result.
type (
	save     struct{}
	logSaved struct{ err error }
)

// saveEvery is the longest time before a new event is on disk; an event does not need a write of its own.
const saveEvery = time.Minute

// refusalLogged is how long a refusal stays in health when no later write shows the present state.
const refusalLogged = 10 * time.Minute

func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		a.opts.State.store("")
		if a.first {
			a.record(ctx, messages.NodeEvent(a.opts.NodeName, v1.EventTypeNormal, messages.EventStarting, "Starting kubelet.",
				ctx.Now()))
		}
		if look := a.opts.AtStart; a.first && look != nil {
			ctx.Do(supervisors.Work{Name: "look for Events of the start", Timeout: callTimeout, Run: func(context.Context) any {
				return foundAtStart(look())
			}})
		}
	case foundAtStart:
		for _, e := range m {
			a.record(ctx, e)
		}
	case messages.RecordEvent:
		a.record(ctx, m)
	case save:
		log := a.opts.Log
		ctx.Do(supervisors.Work{Name: "keep events", Timeout: callTimeout, Run: func(context.Context) any {
			return logSaved{log.Save()}
		}})
		return
	case logSaved:
		if a.saving = false; m.err != nil {
			ctx.Log().Warn("recent Events cannot be written to disk; they are kept in memory", "error", m.err)
		}
		return
	case batchResult:
		a.report(ctx, m)
		a.queue.wrote(ctx.Now(), m, a.opts.Random())
		a.tell(ctx, m)
	case pauseEnded:
		a.timer = nil
	case refusalExpired:
		if a.stale = nil; a.queue.trouble == "" { // else there is newer trouble
			a.opts.State.store("")
		}
	default:
		ctx.Unhandled(msg)
		return
	}
	a.flush(ctx)
}

// record passes an event to the correlator, and keeps the result.
func (a *actor) record(ctx supervisors.Context, m messages.RecordEvent) {
	e := a.queue.record(ctx.Now(), m)
	if e == nil || a.opts.Log == nil {
		return
	}
	a.opts.Log.Put(e)
	if !a.saving {
		a.saving = true
		ctx.After(saveEvery, save{})
	}
}

// tell publishes the result of the last batch.
func (a *actor) tell(ctx supervisors.Context, last batchResult) {
	if a.stale != nil {
		a.stale.Cancel()
		a.stale = nil
	}
	text := problem(a.queue, last)
	a.opts.State.store(text)
	if text != "" && a.queue.trouble == "" {
		a.stale = ctx.After(refusalLogged, refusalExpired{})
	}
}

// flush writes the events that are due.
func (a *actor) flush(ctx supervisors.Context) {
	if a.queue.mayYield(ctx.Now()) && a.opts.Busy != nil && a.opts.Busy() {
		if a.timer == nil {
			a.timer = ctx.After(yieldPause, pauseEnded{})
		}
		return
	}
	if items := a.queue.next(ctx.Now()); len(items) > 0 {
		client := a.opts.Client
		ctx.Do(supervisors.Work{Name: "write events", Timeout: batchTimeout + callTimeout, Run: func(c context.Context) any {
			return write(c, client, items)
		}})
		return
	}
	if !a.queue.busy && len(a.queue.items) == 0 && a.queue.trouble != "" { // the pending events have expired
		a.queue.trouble = ""
		a.opts.State.store("")
	}
	if pause := a.queue.retryAt.Sub(ctx.Now()); pause > 0 && a.timer == nil {
		a.timer = ctx.After(pause, pauseEnded{})
	}
}

// report logs changes in the state of writes.
func (a *actor) report(ctx supervisors.Context, r batchResult) {
	switch {
	case r.unreached != nil && a.queue.trouble == "":
		ctx.Log().Warn("Events cannot be written; will retry", "reason", apiclient.Explain(r.unreached, a.opts.NodeName))
	case r.unreached == nil && a.queue.trouble != "":
		ctx.Log().Info("Events are written again", "waiting", len(a.queue.items)+len(r.left))
	}
	if dropped := a.queue.counts.Dropped; dropped > a.dropped && r.unreached == nil {
		ctx.Log().Warn("too many Events are pending; dropped the oldest ones of the objects with the most",
			"dropped", dropped-a.dropped, "limit", maxWaiting)
		a.dropped = dropped
	}
	if r.refusal == nil || apierrors.HasStatusCause(r.refusal, v1.NamespaceTerminatingCause) {
		return
	}
	if text := apiclient.Explain(r.refusal, a.opts.NodeName); text != a.refusal {
		a.refusal = text
		ctx.Log().Warn("the API server rejected Events; they are dropped", "events", r.refused, "error", text)
	}
}

// Inspection is the state of the actor.
type Inspection struct {
	Counts
	Waiting    int    `json:"waiting"`
	MaxWaiting int    `json:"room"`
	Trouble    string `json:"trouble,omitempty"` // why nothing is written now
	// RetryAt is when it is tried again.
	RetryAt *time.Time `json:"retryAt,omitempty"`
}

func (a *actor) Inspect() any {
	in := Inspection{Counts: a.queue.counts, Waiting: len(a.queue.items), MaxWaiting: maxWaiting, Trouble: a.queue.trouble}
	if at := a.queue.retryAt; !at.IsZero() {
		in.RetryAt = &at
	}
	return in
}

// State holds the reason why events cannot be written, for readers that must not wait for the actor. The zero value has none.
// Safe for concurrent use.
type State struct{ p atomic.Pointer[string] }

// Problems returns sentences about problems: waiting events, or refused ones because the node lacks the permission.
func (s *State) Problems() []string {
	if p := s.p.Load(); p != nil && *p != "" {
		return []string{*p}
	}
	return nil
}

func (s *State) store(text string) {
	if s != nil {
		s.p.Store(&text)
	}
}

// problem returns the problem after a batch. A single refused event, as in a terminating namespace, is none. On a node
// without the permission, all events are refused.
func problem(q *queue, last batchResult) string {
	switch {
	case q.trouble != "":
		return fmt.Sprintf("events cannot be written, and wait (%d): %s", len(q.items), q.trouble)
	case last.done == 0 && apierrors.IsForbidden(last.refusal) &&
		!apierrors.HasStatusCause(last.refusal, v1.NamespaceTerminatingCause):
		return "events are refused, and dropped: " + apiclient.Explain(last.refusal, q.source.node)
	}
	return ""
}
