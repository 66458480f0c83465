package eviction

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	Limits Limits
	// Transition is how long a kind of pressure stays after it was there last (evictionPressureTransitionPeriod).
	Transition time.Duration
	// State says what cannot be measured; nil: not published.
	State *State
	// Measure measures. It is called outside the mailbox.
	Measure func(context.Context) Measurement
	// Every is between measurements; 0: 10 s, the kubelet's.
	Every time.Duration
}

// measureTimeout bounds one measurement: of disks, which may hang, and of what the runtime says.
const measureTimeout = 30 * time.Second

// New is the constructor of the actor. What was seen outlives the actor: its restart ends no pressure.
func New(o Options) supervisors.Constructor {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	state := &atomic.Pointer[pressureState]{}
	state.Store(&pressureState{limits: o.Limits.list(), transition: o.Transition})
	return func(string) supervisors.Actor { return &actor{opts: o, state: state} }
}

type actor struct {
	opts      Options
	state     *atomic.Pointer[pressureState]
	measuring bool
	logged    map[Signal]string // which signals cannot be measured, and why
}

type (
	measureDue struct{}
	measured   struct{ m Measurement }
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, measureDue:
		ctx.After(a.opts.Every, measureDue{})
		a.measure(ctx)
	case measured:
		a.onMeasured(ctx, m.m)
	default:
		ctx.Unhandled(msg)
	}
}

func (a *actor) measure(ctx supervisors.Context) {
	if a.measuring {
		return
	}
	a.measuring = true
	measure := a.opts.Measure
	ctx.Do(supervisors.Work{Name: "Measure", Timeout: measureTimeout, Run: func(ctx context.Context) any {
		return measured{measure(ctx)}
	}})
}

func (a *actor) onMeasured(ctx supervisors.Context, m Measurement) {
	a.measuring = false
	was := a.state.Load()
	now := was.observe(m, ctx.Now())
	a.state.Store(&now)
	a.logFailures(ctx, m)
	for _, p := range now.pressures() {
		if before := was.reported[p.Type]; before.Under != p.Under {
			ctx.Log().Info("the node's pressure changed", "condition", p.Type, "under", p.Under, "reason", p.Message)
		}
	}
	report := messages.NodePressureObserved{Pressures: now.pressures(), At: ctx.Now()}
	ctx.Tell(messages.Registration, report)
	ctx.Tell(messages.Pods, report)
}

// logFailures logs each signal that has a threshold and cannot be measured, once.
func (a *actor) logFailures(ctx supervisors.Context, m Measurement) {
	now := map[Signal]string{}
	for _, l := range a.state.Load().limits {
		if err := m.Failed[l.signal]; err != nil {
			now[l.signal] = err.Error()
		}
	}
	for _, s := range slices.Sorted(maps.Keys(now)) {
		if _, logged := a.logged[s]; !logged {
			ctx.Log().Warn("a signal cannot be measured, and counts as no pressure", "signal", s, "reason", now[s])
		}
	}
	a.logged = now
	a.opts.State.store(now)
}

// State lists the signals that cannot be measured, for readers that must not wait for the actor. The zero value has none. Safe
// for concurrent use.
type State struct{ p atomic.Pointer[[]string] }

// Problems are sentences that say what cannot be measured. They must not be changed.
func (s *State) Problems() []string {
	if p := s.p.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *State) store(failed map[Signal]string) {
	if s == nil {
		return
	}
	names := map[string][]string{} // by what keeps them from being measured
	for _, signal := range slices.Sorted(maps.Keys(failed)) {
		names[failed[signal]] = append(names[failed[signal]], string(signal))
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(names)) {
		out = append(out, fmt.Sprintf("the node's pressure cannot be measured by %s, which counts as none: %s",
			strings.Join(names[why], ", "), why))
	}
	s.p.Store(&out)
}

// Inspection is the actor's answer to an inspection.
type Inspection struct {
	Pressures []messages.Pressure `json:"pressures"`
	Failed    map[Signal]string   `json:"failed,omitempty"`
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	return Inspection{Pressures: a.state.Load().pressures(), Failed: maps.Clone(a.logged)}
}
