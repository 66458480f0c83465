package eviction

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/eviction/oomkill"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configure the actor.
type Options struct {
	Limits Limits
	// Transition is how long a kind of pressure persists after it was last seen (evictionPressureTransitionPeriod).
	Transition time.Duration
	// MaxGrace bounds the grace period of a pod evicted by a soft threshold, in seconds; negative: the pod's own grace period
	// (evictionMaxPodGracePeriod).
	MaxGrace int32
	// Static makes static pods evictable, unless their priority is critical. The kubelet never evicts them.
	Static bool
	// LocalStorage enables the limits of local storage (localStorageCapacityIsolation).
	LocalStorage bool
	// NodeName is the node that Events about thresholds refer to; empty: none are recorded.
	NodeName string
	// Board publishes the pods.
	Board *board.Board
	// Figures returns the figures of running pods. It measures the pods in urgent again, at any cost if the disk is short, and
	// requests no walk of volumes if urgent is nil. The figures of pods in partial are lower bounds. The figures of pods in old
	// are older than requested. lacks has sentences about missing figures. It is called outside the mailbox.
	Figures func(ctx context.Context, urgent map[types.UID]bool, short bool) (
		pods []api.PodStats, partial, old map[types.UID]bool, lacks []string)
	// State has the signals that cannot be measured; nil: it is not published.
	State *State
	// Measure measures. It is called outside the mailbox.
	Measure func(context.Context) Measurement
	// Await blocks until less than a signal's level is left, in its unit, and reports that, or until ctx ends. It is called
	// outside the mailbox; nil: there are only periodic measurements.
	Await func(ctx context.Context, levels map[Signal]int64) bool
	// NextKill waits for the kernel's next out-of-memory kill, or until ctx ends. It is called outside the mailbox; nil: kills
	// are not reported.
	NextKill func(ctx context.Context) (oomkill.Kill, error)
	// NextCounted replaces NextKill if the kernel log cannot be read; nil: the runtime reports the kills that it notices.
	NextCounted func(ctx context.Context) (oomkill.Kill, error)
	// Every is the interval between measurements; 0: 10 s, the kubelet's.
	Every time.Duration
}

const (
	// measureTimeout bounds one measurement: disks and the runtime may hang.
	measureTimeout = 30 * time.Second
	figuresTimeout = 30 * time.Second
	// reclaimTimeout is the wait for a removal of dead containers or images that makes no progress.
	reclaimTimeout = 2 * time.Minute
	// leaveTimeout is the wait for an evicted pod beyond its grace period; the kubelet's.
	leaveTimeout = 30 * time.Second
	// soon is the delay of the second measurement.
	soon = 2 * time.Second
	// settleTimeout is how long evictions wait after a start for all the node's pods to be known.
	settleTimeout = time.Minute
	// maxUnmeasured is how many times an eviction waits for walks of volumes and logs while a disk is short.
	maxUnmeasured = 3
)

// New returns the constructor of the actor. Its observations outlive the actor: its restart ends no pressure.
func New(o Options) supervisors.Constructor {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	state := &atomic.Pointer[pressureState]{}
	state.Store(&pressureState{limits: o.Limits.list(), transition: o.Transition})
	return func(string) supervisors.Actor {
		return &actor{opts: o, state: state, awaited: map[types.UID]bool{}}
	}
}

type actor struct {
	opts      Options
	state     *atomic.Pointer[pressureState]
	measuring bool
	levels    map[Signal]int64 // to be met next
	watched   map[Signal]int64 // the awaited ones; nil: none
	stopWatch func()
	again     bool              // the measurement in progress began before a relevant change
	logged    map[Signal]string // why signals cannot be measured

	// taking is the reclaim in progress; reclaimed is true if one was done since the last eviction.
	taking    reclaimRun
	reclaimed bool
	readings  map[Signal]Reading // of the last measurement
	busy      bool               // figures of pods are being read, or the end of evicted ones is awaited
	walking   bool               // figures are being read that wait for walks of volumes
	reads     int                // counts readings of figures; the result of an older one is dropped
	checking  bool               // the figures of pods with limits of their own are being read
	// leaving holds the pods whose end is awaited, with their grace periods in seconds; nil: none. waits counts such waits.
	leaving  map[types.UID]int64
	waits    int
	stopWait func()
	// awaited are pods that outlived their wait. They are not awaited again.
	awaited   map[types.UID]bool
	acting    Signal    // the signal of the last action, until nothing is short
	met       time.Time // the start of its shortage
	removed   time.Time // the last removal of containers
	began     time.Time // the last measurement
	kernelLog string    // why the kernel's log cannot be read, as logged
	// killCounts is why the counters of kills cannot be read either.
	killCounts string
	// helpless is true if the lack of evictable pods was logged.
	helpless bool
	// unmeasured counts consecutive decisions without an eviction because walks of volumes and logs were unfinished.
	unmeasured int
}

type (
	measureDue   struct{}
	nodeMeasured struct {
		m         Measurement
		reclaimed bool // before its start
	}
	shortAwaited struct{ short bool }
	reclaimDue   struct{ generation int }
	figuresRead  struct {
		act     action
		m       Measurement
		stats   []api.PodStats
		partial map[types.UID]bool
		old     map[types.UID]bool
		lacks   []string

		generation int
	}
	limitsRead struct {
		stats   []api.PodStats
		partial map[types.UID]bool
	}
	leaveEnded struct {
		generation int         // of the wait
		there      []types.UID // pods that have not left in time
	}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		ctx.After(soon, measureDue{}) // by then the cgroup of all pods exists
		a.measure(ctx)
		a.awaitKill(ctx)
	case killRead:
		a.onKill(ctx, m)
	case killDue:
		a.awaitKill(ctx)
	case measureDue:
		ctx.After(a.opts.Every, measureDue{})
		a.measure(ctx)
	case nodeMeasured:
		a.onMeasured(ctx, m)
	case shortAwaited:
		a.stopWatch()
		if a.watched = nil; m.short {
			a.measureAgain(ctx)
		} else {
			a.watch(ctx)
		}
	case messages.ImagesReclaimed:
		ctx.Log().Info("removed unused images", "images", m.Removed, "freedBytes", m.Freed, "problem", m.Shortfall)
		a.reclaimEnded(ctx, messages.Images)
	case messages.ContainersReclaimed:
		a.onContainersReclaimed(ctx, m)
	case lookAgain:
		a.measureAgain(ctx)
	case reclaimDue:
		a.onReclaimDue(ctx, m)
	case messages.ServiceStarted:
		a.askAgain(ctx, m.Service)
	case figuresRead:
		a.onFigures(ctx, m)
	case limitsRead:
		a.onLimits(ctx, m)
	case leaveEnded:
		a.onLeft(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

// measure starts a measurement, or schedules another after the one in progress.
func (a *actor) measure(ctx supervisors.Context) {
	if a.measuring {
		return
	}
	a.measuring, a.again, a.began = true, false, ctx.Now()
	measure, reclaimed := a.opts.Measure, a.reclaimed
	ctx.Do(supervisors.Work{Name: "Measure", Timeout: measureTimeout, Run: func(ctx context.Context) any {
		return nodeMeasured{measure(ctx), reclaimed}
	}})
}

// measureAgain measures the state from now on.
func (a *actor) measureAgain(ctx supervisors.Context) {
	a.again = true
	a.measure(ctx)
}

func (a *actor) onMeasured(ctx supervisors.Context, m nodeMeasured) {
	a.measuring, a.readings = false, m.m.Readings
	was := a.state.Load()
	now := was.observe(m.m, ctx.Now())
	a.state.Store(&now)
	a.logFailures(ctx, m.m)
	for _, p := range now.pressures() {
		if before := was.reported[p.Type]; before.Under != p.Under {
			ctx.Log().Info("the node's pressure changed", "condition", p.Type, "under", p.Under, "reason", p.Message)
		}
	}
	report := messages.NodePressureObserved{Pressures: now.pressures(), At: ctx.Now()}
	if a.opts.NodeName != "" {
		ctx.Tell(messages.Registration, report)
	}
	ctx.Tell(messages.Pods, report)
	if a.again {
		a.measure(ctx)
		return
	}
	a.act(ctx, a.decide(now, m, ctx.Now()), m.m)
	a.levels = now.levels(m.m)
	a.watch(ctx)
}

// watch waits for the next thresholds. A wait for outdated ones ends and restarts.
func (a *actor) watch(ctx supervisors.Context) {
	if a.watched != nil && !maps.Equal(a.watched, a.levels) {
		a.stopWatch()
	}
	if a.watched != nil || len(a.levels) == 0 || a.opts.Await == nil {
		return
	}
	stopped, stop := context.WithCancel(context.Background())
	a.watched, a.stopWatch = a.levels, stop
	await, levels := a.opts.Await, a.levels
	ctx.Do(supervisors.Work{Name: "await a shortage", Timeout: a.opts.Every, Routine: true,
		Run: func(ctx context.Context) any {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(stopped, cancel)()
			return shortAwaited{await(ctx, levels)}
		}})
}

// logFailures logs each signal with a threshold that cannot be measured, once.
func (a *actor) logFailures(ctx supervisors.Context, m Measurement) {
	now := map[Signal]string{}
	for _, l := range a.state.Load().limits {
		if err := m.Failed[l.signal]; err != nil {
			now[l.signal] = err.Error()
		}
	}
	for _, s := range slices.Sorted(maps.Keys(now)) {
		if _, logged := a.logged[s]; !logged {
			ctx.Log().Warn("an eviction signal cannot be measured; it counts as no pressure", "signal", s, "reason", now[s])
		}
	}
	a.logged = now
	a.opts.State.store(now)
}

// State lists the signals that cannot be measured, for readers that must not block on the actor. The zero value has none. It is
// safe for concurrent use.
type State struct{ p atomic.Pointer[[]string] }

// Problems returns one sentence per signal that cannot be measured. They must not be changed.
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
	names := map[string][]string{} // by the cause of the failure
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

// Inspect implements supervisors.Inspector.
func (a *actor) Inspect() any {
	return Inspection{Pressures: a.state.Load().pressures(), Failed: maps.Clone(a.logged)}
}
