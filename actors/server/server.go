package server

import (
	"context"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const (
	// lookEvery is the interval for checking open listeners: a check costs two system calls.
	lookEvery   = 10 * time.Second
	openTimeout = 10 * time.Second
)

// retry is the back-off for a listener that cannot be opened, e.g. because its port is taken.
var retry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// Options has the dependencies of the actor.
type Options struct {
	// Listeners are created before the tree and closed after it.
	Listeners *Listeners
}

// New returns the constructor of the actor of kind "server".
func New(opts Options) supervisors.Constructor {
	return func(string) supervisors.Actor { return &actor{listeners: opts.Listeners, failing: map[string]string{}} }
}

type actor struct {
	listeners *Listeners
	looking   bool
	failures  int               // consecutive checks that could not open a listener
	failing   map[string]string // the last logged reason by listener
}

type (
	look           struct{}
	listenerResult struct{ listeners []Listener }
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, look:
		a.look(ctx)
	case listenerResult:
		a.handleListeners(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

// look opens all closed listeners. It is idempotent: listeners opened by a predecessor of this actor stay.
func (a *actor) look(ctx supervisors.Context) {
	if a.looking {
		return
	}
	a.looking = true
	ctx.Do(supervisors.Work{Name: "open the listeners", Timeout: openTimeout, Run: func(ctx context.Context) any {
		return listenerResult{a.listeners.ensure(ctx)}
	}})
}

func (a *actor) handleListeners(ctx supervisors.Context, m listenerResult) {
	a.looking = false
	failed := false
	for _, l := range m.listeners {
		failed = failed || l.Error != ""
		if l.Error == a.failing[l.Name] {
			continue
		}
		a.failing[l.Name] = l.Error
		if l.Error == "" {
			ctx.Log().Info("listening", "listener", l.Name, "on", l.Where)
			continue
		}
		ctx.Log().Warn("cannot listen; will retry, and pods keep running", "listener", l.Name, "on", l.Where, "error", l.Error)
	}
	if !failed {
		a.failures = 0
		ctx.After(lookEvery, look{})
		return
	}
	a.failures++
	ctx.After(retry.After(a.failures, 0), look{})
}

// Inspection is the actor's part of an inspection.
type Inspection struct {
	Listeners []Listener `json:"listeners"`
	Failures  int        `json:"failures,omitempty"` // consecutive checks that could not open a listener
	Logs      int        `json:"logs"`               // being read
	Streams   int        `json:"streams"`            // open: commands, attached clients, forwarded ports
}

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	logs, streams := a.listeners.streams()
	return Inspection{Listeners: a.listeners.State(), Failures: a.failures, Logs: logs, Streams: streams}
}
