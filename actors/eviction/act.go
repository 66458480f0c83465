package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// The steps after a measurement: unused objects are reclaimed (reclaim.go), pods are evicted, and their end is awaited
// (leave.go). The measuring actor is in actor.go.

// decide returns the action for a measurement. While a pod leaves with the grace period of a soft threshold, only hard ones
// count. If it leaves for a disk, unused objects were reclaimed before.
func (a *actor) decide(now pressureState, m nodeMeasured, at time.Time) action {
	if a.unhurried() {
		return now.decide(m.m, m.reclaimed || a.acting.kind() == v1.NodeDiskPressure, true, at)
	}
	return now.decide(m.m, m.reclaimed, false, at)
}

// act carries out the action for a measurement.
func (a *actor) act(ctx supervisors.Context, act action, m Measurement) {
	if a.opts.Board == nil || !settled(a.opts.Board.Now(), ctx.Now()) {
		return
	}
	if a.unhurried() && act.kind != nothing { // a hard threshold
		if act.kind == reclaim {
			a.reclaim(ctx, act)
			return
		}
		a.stopAwaiting()
	}
	if a.walking && act.kind == evict && act.by.signal.kind() != v1.NodeDiskPressure {
		a.busy, a.walking = false, false // memory does not wait for a disk
	}
	if a.opts.LocalStorage && (act.kind == nothing || act.by.signal.kind() != v1.NodeDiskPressure) {
		a.checkLimits(ctx)
	}
	if a.busy {
		return
	}
	if act.kind == nothing {
		a.acting, a.reclaimed, a.unmeasured = "", false, 0
	} else if a.acting != act.by.signal {
		a.acting, a.helpless, a.met = act.by.signal, false, a.began
		what := signals[a.acting].resource
		ctx.Log().Warn("eviction threshold met", "reason", act.by.describe(m.Readings[a.acting]))
		a.nodeEvent(ctx, fmt.Sprintf("Attempting to reclaim %s", what))
	}
	switch {
	case a.freeing(ctx, act), act.kind == nothing:
	case act.kind == evict, len(a.boundedPods()) > 0:
		a.figure(ctx, act, m)
	case act.kind == reclaim:
		a.reclaim(ctx, act)
	}
}

// settled reports whether eviction may act on the known pods. While a new agent adopts its pods, the few known ones would be
// evicted for the usage of the others. A source that is never read, or a pod that is never read, delays eviction only for a
// while.
func settled(s *board.Snapshot, now time.Time) bool {
	return now.Sub(s.Life) > settleTimeout || known(s)
}

// known reports whether all pods of the node are known, with their statuses.
func known(s *board.Snapshot) bool {
	return s.Complete() && !slices.ContainsFunc(s.Pods, func(p board.Pod) bool {
		return p.Quarantine == nil && (p.Phase == "" || p.Phase == "reading")
	})
}

func (a *actor) nodeEvent(ctx supervisors.Context, text string) {
	if name := a.opts.NodeName; name != "" {
		ctx.Tell(messages.Events, messages.NodeEvent(name, v1.EventTypeWarning, messages.EventThresholdMet, text, ctx.Now()))
	}
}

// boundedPods returns the pods with an enforced limit of local storage.
func (a *actor) boundedPods() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, p := range a.opts.Board.Now().Pods {
		if a.opts.LocalStorage && p.Failure == nil && evictable(p.Pod, a.opts.Static) && bounded(p.Pod) {
			out[p.Pod.UID] = true
		}
	}
	return out
}

// figure reads the use of pods for a decision. Only one for a disk requests walks and waits for them.
func (a *actor) figure(ctx supervisors.Context, act action, m Measurement) {
	a.reads++
	generation := a.reads
	a.busy, a.walking = true, act.by.signal.kind() == v1.NodeDiskPressure
	var urgent map[types.UID]bool
	short := act.kind == evict && a.walking
	if a.walking {
		urgent = a.boundedPods()
	}
	if short {
		for _, p := range a.opts.Board.Now().Pods {
			urgent[p.Pod.UID] = true
		}
	}
	figures := a.opts.Figures
	ctx.Do(supervisors.Work{Name: "figures of pods", Timeout: figuresTimeout, Run: func(ctx context.Context) any {
		stats, partial, old, lacks := figures(ctx, urgent, short)
		return figuresRead{act, m, stats, partial, old, lacks, generation}
	}})
}

// checkLimits reads the use of pods with limits of their own. It delays no decision about the node.
func (a *actor) checkLimits(ctx supervisors.Context) {
	urgent := a.boundedPods()
	if a.checking || len(urgent) == 0 {
		return
	}
	a.checking = true
	figures := a.opts.Figures
	ctx.Do(supervisors.Work{Name: "limits of pods", Timeout: figuresTimeout, Run: func(ctx context.Context) any {
		stats, partial, _, _ := figures(ctx, urgent, false)
		return limitsRead{stats, partial}
	}})
}

// onLimits evicts the pods that exceed limits of their own. Their end is not awaited.
func (a *actor) onLimits(ctx supervisors.Context, m limitsRead) {
	a.checking = false
	a.forgetGone()
	candidates, leaving := a.candidates(figuresRead{stats: m.stats, partial: m.partial})
	candidates = slices.DeleteFunc(candidates, func(c candidate) bool { _, leaves := a.leaving[c.pod.UID]; return leaves })
	a.evictOver(ctx, candidates, leaving)
}

// evictOver evicts the pods that exceed limits of their own, and returns their number.
func (a *actor) evictOver(ctx supervisors.Context, candidates []candidate, leaving map[types.UID]int64) (over int) {
	for _, c := range candidates {
		if limit, message := c.exceeds(); a.opts.LocalStorage && limit != "" {
			over++
			why := failure(message, grace(limitOfPod, c.pod, 0))
			why.Cause.Code = messages.CauseLimitExceeded
			a.evict(ctx, c, limit, why, leaving)
		}
	}
	return over
}

// onFigures evicts the pods that exceed limits of their own. Otherwise it reclaims, or evicts the one pod that ranks first.
func (a *actor) onFigures(ctx supervisors.Context, f figuresRead) {
	if f.generation != a.reads {
		return // a decision about memory came before it
	}
	a.busy, a.walking = false, false
	a.forgetGone()
	candidates, leaving := a.candidates(f)
	over, awaited := a.evictOver(ctx, candidates, leaving), 0
	if f.act.kind == evict {
		var unmeasured []candidate
		if f.act.by.signal.kind() == v1.NodeDiskPressure {
			candidates, unmeasured = split(candidates)
		}
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return c.freesNothing(f.act.by.signal, f.act.on) })
		rank(f.act.by.signal, f.act.on, candidates)
		awaited = hidden(f.act.by.signal, f.act.on, candidates, unmeasured)
	}
	switch {
	case over > 0 || len(leaving) > 0:
		if f.act.kind == evict && f.act.by.hard() {
			a.hasten(ctx, leaving)
		}
	case f.act.kind == reclaim:
		a.reclaim(ctx, f.act)
		return
	case awaited > 0 && a.unmeasured < maxUnmeasured: // it may be the one that fills the disk
		a.unmeasured++
		ctx.Log().Info("eviction is waiting for measurements of volumes and logs", "pods", awaited, "missing", f.lacks)
		a.measureAgain(ctx)
		return
	case len(candidates) == 0:
		if !a.helpless {
			ctx.Log().Warn("eviction threshold met, but no pod can be evicted", "signal", f.act.by.signal,
				"missing", f.lacks)
		}
		a.helpless, a.reclaimed = true, false
		return
	default:
		if a.layersDue(ctx, f, candidates) || a.newcomerDue(ctx, f) {
			return
		}
		c := candidates[0]
		message, annotations := explain(f.act.by, f.m.Readings[f.act.by.signal], c)
		why := failure(message, grace(f.act.by, c.pod, a.opts.MaxGrace))
		why.Annotations = annotations
		a.evict(ctx, c, string(f.act.by.signal), why, leaving)
	}
	a.await(ctx, leaving)
}

// split separates the candidates without any figures of their volumes and logs.
func split(list []candidate) (measured, unmeasured []candidate) {
	for _, c := range list {
		if c.unmeasured() {
			unmeasured = append(unmeasured, c)
		} else {
			measured = append(measured, c)
		}
	}
	return measured, unmeasured
}

// hidden counts the pods that may rank first once their complete disk figures are known.
func hidden(s Signal, on contents, ranked, unmeasured []candidate) (n int) {
	switch {
	case s.kind() != v1.NodeDiskPressure:
		return 0
	case len(ranked) == 0:
		return len(unmeasured)
	}
	first := ranked[0]
	overtakes := func(c candidate) bool { // whatever c uses
		return first.excess(signals[s].resource, on) <= 0 ||
			ptr.Deref(c.pod.Spec.Priority, 0) <= ptr.Deref(first.pod.Spec.Priority, 0)
	}
	if first.old {
		n++ // it may rank lower
	}
	for _, c := range ranked[1:] {
		if (c.partial || c.old) && overtakes(c) {
			n++
		}
	}
	for _, c := range unmeasured {
		if overtakes(c) {
			n++
		}
	}
	return n
}

// limitOfPod stands for a pod's own limits: a pod above them is evicted at once.
var limitOfPod = limit{field: hardField}

// candidates returns the evictable pods with figures; the effect of evicting others is unknown. leaving holds the pods already
// being evicted whose end is awaited, with their grace periods.
func (a *actor) candidates(f figuresRead) (list []candidate, leaving map[types.UID]int64) {
	leaving = map[types.UID]int64{}
	figures := map[string]*api.PodStats{}
	for i := range f.stats {
		figures[f.stats[i].PodRef.UID] = &f.stats[i]
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
			list = append(list, candidate{p.Pod, s, f.partial[p.Pod.UID], f.old[p.Pod.UID]})
		}
	}
	return list, leaving
}

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
