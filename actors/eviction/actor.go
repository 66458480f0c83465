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

// Options are what the actor needs.
type Options struct {
	Limits Limits
	// Transition is how long a kind of pressure stays after it was there last (evictionPressureTransitionPeriod).
	Transition time.Duration
	// MaxGrace is how long the containers of a pod have at most that a soft threshold evicts, in seconds; negative: the pod's own
	// grace period (evictionMaxPodGracePeriod).
	MaxGrace int32
	// Static says that static pods are evicted, too, unless their priority is critical. The kubelet never does.
	Static bool
	// LocalStorage says that limits of local storage are held (localStorageCapacityIsolation).
	LocalStorage bool
	// NodeName is the node that Events about thresholds refer to; empty: none are recorded.
	NodeName string
	// Board has the pods.
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
	// Await waits until less is left of a signal than its level, in its unit, and reports that, or until ctx ends. It is called
	// outside the mailbox; nil: it is only measured now and then.
	Await func(ctx context.Context, levels map[Signal]int64) bool
	// NextKill waits for the next process that the kernel kills when memory runs out, or until ctx ends. It is called outside the
	// mailbox; nil: kills are not reported.
	NextKill func(ctx context.Context) (oomkill.Kill, error)
	// NextCounted is NextKill for a kernel log that cannot be read; nil: the runtime reports the kills that it notices.
	NextCounted func(ctx context.Context) (oomkill.Kill, error)
	// Every is between measurements; 0: 10 s, the kubelet's.
	Every time.Duration
}

const (
	// measureTimeout bounds one measurement: of disks, which may hang, and of what the runtime says.
	measureTimeout = 30 * time.Second
	figuresTimeout = 30 * time.Second
	// reclaimTimeout is how long the removal of dead containers, and of images, is waited for without any more being left.
	reclaimTimeout = 2 * time.Minute
	// leaveTimeout is how long the end of an evicted pod is waited for beyond its grace period; the kubelet's.
	leaveTimeout = 30 * time.Second
	// soon is when it is measured for the second time.
	soon = 2 * time.Second
	// settleTimeout is how long nobody is evicted after a start while the node's pods are not all known.
	settleTimeout = time.Minute
	// maxUnmeasured is how often an eviction waits for the end of walks of volumes and logs while a disk is short.
	maxUnmeasured = 3
)

// New is the constructor of the actor. What was seen outlives the actor: its restart ends no pressure.
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
	watched   map[Signal]int64 // those that are awaited; nil: none
	stopWatch func()
	again     bool              // a measurement under way began before something that matters
	logged    map[Signal]string // which signals cannot be measured, and why

	// taking is what nobody uses and is taken back; reclaimed says that it was since the last pod was evicted.
	taking    taking
	reclaimed bool
	readings  map[Signal]Reading // of the last measurement
	busy      bool               // figures of pods are being read, or the end of evicted ones is awaited
	walking   bool               // figures are being read that wait for walks of volumes
	reads     int                // counts readings of figures; the result of an older one is dropped
	checking  bool               // the figures of pods with limits of their own are being read
	// leaving are pods whose end is awaited, with their grace periods in seconds; nil: none are. waits counts such waits.
	leaving  map[types.UID]int64
	waits    int
	stopWait func()
	// awaited are pods whose end was waited for in vain. Nobody waits for them again.
	awaited   map[types.UID]bool
	acting    Signal    // for which something was done last, until nothing is short
	met       time.Time // since when it is
	removed   time.Time // when containers were removed last
	began     time.Time // the last measurement
	kernelLog string    // why the kernel's log cannot be read, as it was logged
	// killCounts is why the counters of kills cannot be read, either.
	killCounts string
	// helpless says that it was logged that no pod may be evicted for it.
	helpless bool
	// unmeasured is how often in a row no pod was evicted since the volumes and logs of some were not measured to the end.
	unmeasured int
}

type (
	measureDue struct{}
	measured   struct {
		m         Measurement
		reclaimed bool // before it began
	}
	shortAwaited struct{ short bool }
	reclaimDue   struct{ generation int }
	figured      struct {
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
	left struct {
		generation int         // of the wait
		there      []types.UID // pods that have not left in time
	}
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		ctx.After(soon, measureDue{}) // by then the cgroup of all pods is there
		a.measure(ctx)
		a.awaitKill(ctx)
	case killed:
		a.onKill(ctx, m)
	case killDue:
		a.awaitKill(ctx)
	case measureDue:
		ctx.After(a.opts.Every, measureDue{})
		a.measure(ctx)
	case measured:
		a.onMeasured(ctx, m)
	case shortAwaited:
		a.stopWatch()
		if a.watched = nil; m.short {
			a.measureAgain(ctx)
		} else {
			a.watch(ctx)
		}
	case messages.ImagesReclaimed:
		ctx.Log().Info("removed the images that nobody uses", "images", m.Removed, "freedBytes", m.Freed, "problem", m.Lack)
		a.reclaimEnded(ctx, messages.Images)
	case messages.ContainersReclaimed:
		a.onContainersReclaimed(ctx, m)
	case lookAgain:
		a.measureAgain(ctx)
	case reclaimDue:
		a.onReclaimDue(ctx, m)
	case messages.ServiceStarted:
		a.askAgain(ctx, m.Service)
	case figured:
		a.onFigures(ctx, m)
	case limitsRead:
		a.onLimits(ctx, m)
	case left:
		a.onLeft(ctx, m)
	default:
		ctx.Unhandled(msg)
	}
}

// measure begins a measurement; one that is under way is followed by another.
func (a *actor) measure(ctx supervisors.Context) {
	if a.measuring {
		return
	}
	a.measuring, a.again, a.began = true, false, ctx.Now()
	measure, reclaimed := a.opts.Measure, a.reclaimed
	ctx.Do(supervisors.Work{Name: "Measure", Timeout: measureTimeout, Run: func(ctx context.Context) any {
		return measured{measure(ctx), reclaimed}
	}})
}

// measureAgain measures what there is from now on.
func (a *actor) measureAgain(ctx supervisors.Context) {
	a.again = true
	a.measure(ctx)
}

func (a *actor) onMeasured(ctx supervisors.Context, m measured) {
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

// watch has the next thresholds awaited. A wait for others ends, and begins again.
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
