package eviction

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
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
	// NodeName is whose Events tell of thresholds; empty: none are recorded.
	NodeName string
	// Board has the pods.
	Board *board.Board
	// Figures are those of the pods that run, fresh of the ones in urgent, with sentences on what is missing. It is called
	// outside the mailbox.
	Figures func(ctx context.Context, urgent map[types.UID]bool) ([]api.PodStats, []string)
	// State says what cannot be measured; nil: not published.
	State *State
	// Measure measures. It is called outside the mailbox.
	Measure func(context.Context) Measurement
	// AwaitMemory waits until less memory is left than one of these levels, in bytes, and reports that, or until ctx ends. It is
	// called outside the mailbox; nil: memory is looked at with all else.
	AwaitMemory func(ctx context.Context, levels map[Signal]int64) bool
	// Every is between measurements; 0: 10 s, the kubelet's.
	Every time.Duration
}

const (
	// measureTimeout bounds one measurement: of disks, which may hang, and of what the runtime says.
	measureTimeout = 30 * time.Second
	figuresTimeout = 30 * time.Second
	// reclaimTimeout is how long the removal of dead containers and images is waited for.
	reclaimTimeout = 2 * time.Minute
	// leaveTimeout is how long the end of an evicted pod is waited for beyond its grace period; the kubelet's.
	leaveTimeout = 30 * time.Second
	// soon is when it is measured for the second time.
	soon = 2 * time.Second
	// settleTimeout is how long nobody is evicted after a start while the node's pods are not all known.
	settleTimeout = time.Minute
	// maxUnmeasured is how often an eviction waits for the walks of volumes and logs that a disk's threshold is about.
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
	levels    map[Signal]int64 // of memory, to be met next
	watched   map[Signal]int64 // those that memory is watched for; nil: it is not
	stopWatch func()
	again     bool              // a measurement under way began before something that matters
	logged    map[Signal]string // which signals cannot be measured, and why

	// reclaiming are the services that are asked for what nobody uses, and have not answered; reclaimed says that they have since
	// the last pod was evicted.
	reclaiming map[messages.Address]bool
	generation int // of reclaims and of waits: what belongs to an earlier one is dropped
	reclaimed  bool
	busy       bool // figures of pods are being read, or the end of evicted ones is awaited
	// awaited are pods whose end was waited for in vain. Nobody waits for them again.
	awaited map[types.UID]bool
	acting  Signal    // for which something was done last, until nothing is short
	began   time.Time // the last measurement
	// helpless says that it was logged that no pod may be evicted for it.
	helpless bool
	// unmeasured is how often pods were not evicted since the volumes and logs of some were not measured, one after another.
	unmeasured int
}

type (
	measureDue struct{}
	measured   struct {
		m         Measurement
		reclaimed bool // before it began
	}
	memoryWatched struct{ short bool }
	reclaimDue    struct{ generation int }
	figured       struct {
		act   action
		m     Measurement
		stats []api.PodStats
		lacks []string
	}
	left struct{ there []types.UID } // pods that have not left in time
)

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		ctx.After(soon, measureDue{}) // by then the cgroup of all pods is there
		a.measure(ctx)
	case measureDue:
		ctx.After(a.opts.Every, measureDue{})
		a.measure(ctx)
	case measured:
		a.onMeasured(ctx, m)
	case memoryWatched:
		a.stopWatch()
		if a.watched = nil; m.short {
			a.measureAgain(ctx)
		} else {
			a.watch(ctx)
		}
	case messages.ImagesReclaimed:
		ctx.Log().Info("removed the images that nobody uses", "images", m.Removed, "freedBytes", m.Freed, "lack", m.Lack)
		a.reclaimEnded(ctx, messages.Images)
	case messages.ContainersReclaimed:
		ctx.Log().Info("removed dead containers, sandboxes and logs", "things", m.Removed, "lack", m.Lack)
		a.reclaimEnded(ctx, messages.Runtime)
	case reclaimDue:
		if m.generation == a.generation {
			a.reclaimEnded(ctx, slices.Collect(maps.Keys(a.reclaiming))...)
		}
	case figured:
		a.onFigures(ctx, m)
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
	a.measuring = false
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
	a.act(ctx, now.decide(m.m, m.reclaimed, ctx.Now()), m.m)
	a.levels = now.levels(m.m)
	a.watch(ctx)
}

// watch has memory watched. A watch of other thresholds ends, and begins again.
func (a *actor) watch(ctx supervisors.Context) {
	if a.watched != nil && !maps.Equal(a.watched, a.levels) {
		a.stopWatch()
	}
	if a.watched != nil || len(a.levels) == 0 || a.opts.AwaitMemory == nil {
		return
	}
	stopped, stop := context.WithCancel(context.Background())
	a.watched, a.stopWatch = a.levels, stop
	await, levels := a.opts.AwaitMemory, a.levels
	ctx.Do(supervisors.Work{Name: "await a shortage of memory", Timeout: a.opts.Every, Routine: true,
		Run: func(ctx context.Context) any {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(stopped, cancel)()
			return memoryWatched{await(ctx, levels)}
		}})
}

// act does what a measurement leads to.
func (a *actor) act(ctx supervisors.Context, act action, m Measurement) {
	if a.busy || a.opts.Board == nil || !settled(a.opts.Board.Now(), ctx.Now()) {
		return
	}
	if act.kind == nothing {
		a.acting, a.reclaimed, a.unmeasured = "", false, 0
	} else if a.acting != act.by.signal {
		a.acting, a.helpless = act.by.signal, false
		what := signals[a.acting].resource
		ctx.Log().Warn("a threshold of eviction is met", "reason", act.by.describe(m.Readings[a.acting]))
		a.nodeEvent(ctx, fmt.Sprintf("Attempting to reclaim %s", what))
	}
	switch {
	case act.kind == evict, len(a.boundedPods()) > 0:
		a.figure(ctx, act, m)
	case act.kind == reclaim:
		a.reclaim(ctx, act.on)
	}
}

// settled says that all pods of the node are known, with their statuses. While an agent that has just begun adopts them, the few
// that are known would be evicted for what the others use. A source that is never heard, or a pod that is never read, does not
// hold eviction up for long.
func settled(s *board.Snapshot, now time.Time) bool {
	return now.Sub(s.Life) > settleTimeout || s.Complete() && !slices.ContainsFunc(s.Pods, func(p board.Pod) bool {
		return p.Quarantine == nil && (p.Phase == "" || p.Phase == "reading")
	})
}

func (a *actor) nodeEvent(ctx supervisors.Context, text string) {
	if name := a.opts.NodeName; name != "" {
		ctx.Tell(messages.Events, messages.NodeEvent(name, v1.EventTypeWarning, messages.EventThresholdMet, text, ctx.Now()))
	}
}

// reclaim has taken back what nobody uses on a file system.
func (a *actor) reclaim(ctx supervisors.Context, on contents) {
	if len(a.reclaiming) > 0 {
		return
	}
	a.generation++
	a.reclaiming = map[messages.Address]bool{}
	if on.dead() {
		over := map[string]bool{}
		for _, p := range a.opts.Board.Now().Pods {
			if p.Status != nil && finalstatus.Final(p.Status.Phase) {
				over[string(p.Pod.UID)] = true
			}
		}
		a.reclaiming[messages.Runtime] = true
		ctx.Tell(messages.Runtime, messages.ReclaimContainers{Over: over})
	}
	if on.images {
		a.reclaiming[messages.Images] = true
		if !on.dead() {
			ctx.Tell(messages.Images, messages.ReclaimImages{})
		}
	}
	ctx.After(reclaimTimeout, reclaimDue{a.generation})
}

// reclaimEnded takes the answers. Images come after containers, which may be the last to use them.
func (a *actor) reclaimEnded(ctx supervisors.Context, from ...messages.Address) {
	if len(a.reclaiming) == 0 {
		return
	}
	for _, who := range from {
		delete(a.reclaiming, who)
	}
	if len(a.reclaiming) > 0 {
		ctx.Tell(messages.Images, messages.ReclaimImages{})
		return
	}
	a.reclaimed = true
	a.measureAgain(ctx)
}

// boundedPods are those that have a limit of local storage to be held.
func (a *actor) boundedPods() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, p := range a.opts.Board.Now().Pods {
		if a.opts.LocalStorage && p.Failure == nil && evictable(p.Pod, a.opts.Static) && bounded(p.Pod) {
			out[p.Pod.UID] = true
		}
	}
	return out
}

// figure reads what pods use, for a decision over them: afresh where a disk is short.
func (a *actor) figure(ctx supervisors.Context, act action, m Measurement) {
	a.busy = true
	urgent := a.boundedPods()
	if act.kind == evict && act.by.signal.kind() == v1.NodeDiskPressure {
		for _, p := range a.opts.Board.Now().Pods {
			urgent[p.Pod.UID] = true
		}
	}
	figures := a.opts.Figures
	ctx.Do(supervisors.Work{Name: "figures of pods", Timeout: figuresTimeout, Run: func(ctx context.Context) any {
		stats, lacks := figures(ctx, urgent)
		return figured{act, m, stats, lacks}
	}})
}

// onFigures evicts the pods that exceed limits of their own. Where none does, and a threshold is met, what nobody uses goes, or
// the one pod that comes first.
func (a *actor) onFigures(ctx supervisors.Context, f figured) {
	a.busy = false
	candidates, leaving := a.candidates(f.stats)
	all, over := len(candidates), 0
	for _, c := range candidates {
		if limit, message := c.exceeds(); a.opts.LocalStorage && limit != "" {
			over++
			a.evict(ctx, c, limit, failure(message, grace(limitOfPod, c.pod, 0)), leaving)
		}
	}
	if f.act.kind == evict && f.act.by.signal.kind() == v1.NodeDiskPressure {
		candidates = slices.DeleteFunc(candidates, candidate.unmeasured)
	}
	switch {
	case f.act.kind == nothing:
		return // nobody waits for pods that leave while nothing is short
	case over > 0 || len(leaving) > 0:
	case f.act.kind == reclaim:
		a.reclaim(ctx, f.act.on)
		return
	case len(candidates) < all && a.unmeasured < maxUnmeasured: // it may be one of those that fills the disk
		a.unmeasured++
		ctx.Log().Info("eviction waits for the measurement of volumes and logs", "pods", all-len(candidates), "lacks", f.lacks)
		a.measureAgain(ctx)
		return
	case len(candidates) == 0:
		if !a.helpless {
			ctx.Log().Warn("a threshold of eviction is met, and there is no pod that may be evicted", "signal", f.act.by.signal,
				"lacks", f.lacks)
		}
		a.helpless, a.reclaimed = true, false
		return
	default:
		rank(f.act.by.signal, f.act.on, candidates)
		c := candidates[0]
		message := explain(f.act.by, f.m.Readings[f.act.by.signal], c)
		a.evict(ctx, c, string(f.act.by.signal), failure(message, grace(f.act.by, c.pod, a.opts.MaxGrace)), leaving)
	}
	a.await(ctx, leaving)
}

// limitOfPod stands for a pod's own limits: who exceeds them is evicted at once.
var limitOfPod = limit{field: hardField}

// candidates are the pods that may be evicted and of which figures are known: of others nobody knows whether their end would
// bring anything. leaving are those that the node ends already and whose end is to be waited for, with their grace periods.
func (a *actor) candidates(stats []api.PodStats) (list []candidate, leaving map[types.UID]int64) {
	leaving = map[types.UID]int64{}
	figures := map[string]*api.PodStats{}
	for i := range stats {
		figures[stats[i].PodRef.UID] = &stats[i]
	}
	for _, p := range a.opts.Board.Now().Pods {
		s := figures[string(p.Pod.UID)]
		switch {
		case gone(&p):
		case p.Failure != nil:
			// A preempted pod is not awaited: its grace period has no bound, and the kernel does not wait.
			if p.Failure.Reason == messages.EventEvicted && !a.awaited[p.Pod.UID] {
				leaving[p.Pod.UID] = *cmp.Or(p.Failure.Grace, p.Pod.Spec.TerminationGracePeriodSeconds, ptr.To[int64](30))
			}
		case s != nil && p.Ending == "" && evictable(p.Pod, a.opts.Static):
			list = append(list, candidate{p.Pod, s})
		}
	}
	return list, leaving
}

// gone says that nothing of the pod runs any more, and that its volumes have gone.
func gone(p *board.Pod) bool { return p.Phase == "finished" }

func (a *actor) evict(ctx supervisors.Context, c candidate, signal string, why messages.PodFailure,
	leaving map[types.UID]int64,
) {
	ctx.Log().Warn("evicting a pod", "pod", c.pod.Namespace+"/"+c.pod.Name, "podUID", c.pod.UID, "signal", signal, "message",
		why.Message)
	metrics.Evictions.WithLabelValues(signal).Inc()
	metrics.EvictionAge.WithLabelValues(signal).Observe(ctx.Now().Sub(a.began).Seconds())
	ctx.Tell(messages.Pods, messages.EvictPod{UID: string(c.pod.UID), Failure: why})
	a.reclaimed, a.unmeasured = false, 0
	leaving[c.pod.UID] = *why.Grace
}

// await waits for the end of pods before anything more is done: what they leave may be enough. leaving has their grace periods,
// in seconds.
func (a *actor) await(ctx supervisors.Context, leaving map[types.UID]int64) {
	a.busy = true
	published := a.opts.Board
	limit := leaveTimeout + podspec.Grace(slices.Max(slices.Collect(maps.Values(leaving))))
	ctx.Do(supervisors.Work{Name: "await the end of evicted pods", Timeout: limit, Run: func(ctx context.Context) any {
		for s := published.Now(); ; {
			var there []types.UID
			for i := range s.Pods {
				if _, ok := leaving[s.Pods[i].Pod.UID]; ok && !gone(&s.Pods[i]) {
					there = append(there, s.Pods[i].Pod.UID)
				}
			}
			var err error
			if len(there) == 0 {
				return left{}
			}
			if s, err = published.After(ctx, s.Version); err != nil {
				return left{there}
			}
		}
	}})
}

// onLeft measures what the end of pods has brought. Nobody waits again for one that does not end.
func (a *actor) onLeft(ctx supervisors.Context, m left) {
	a.busy = false
	for _, uid := range m.there {
		a.awaited[uid] = true
		ctx.Log().Warn("an evicted pod does not end in time; nobody waits for it any longer", "podUID", uid)
	}
	a.measureAgain(ctx)
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
