package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/threshold"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Waits for delayed effects in the runtime, so that no pod is evicted unnecessarily. containerd frees the writable layers of
// removed containers a little later, and measures the others every ten seconds.

const (
	// freedTimeout bounds the wait for the space of removed containers.
	freedTimeout = 3 * time.Second
	freedLook    = 250 * time.Millisecond
	// layersTimeout bounds the wait for figures of writable layers no older than the shortage.
	layersTimeout = 15 * time.Second
	layersLook    = time.Second
	// newcomerTimeout bounds the wait for the figures of a new pod.
	newcomerTimeout = 1500 * time.Millisecond
	newcomerLook    = 250 * time.Millisecond
)

// lookAgain is the delay of the next measurement.
type lookAgain struct{}

// onContainersReclaimed records a removal whose space is freed later.
func (a *actor) onContainersReclaimed(ctx supervisors.Context, m messages.ContainersReclaimed) {
	ctx.Log().Info("removed dead containers, sandboxes and logs", "objects", m.Removed, "freedBytes", m.Freed,
		"problem", m.Problem)
	if m.Removed > 0 {
		a.removed = ctx.Now()
	}
	a.reclaimEnded(ctx, messages.Runtime)
}

// freeing reports whether the last removal may still free space, and schedules another measurement then.
func (a *actor) freeing(ctx supervisors.Context, act action) bool {
	if act.kind != evict || !act.on.layers || ctx.Now().Sub(a.removed) >= freedTimeout {
		return false
	}
	ctx.After(freedLook, lookAgain{})
	return true
}

// layersDue reports whether the first pod may rank too high because its figures are older than the shortage, and has them read
// again. It does not wait for a pod whose eviction is sufficient.
func (a *actor) layersDue(ctx supervisors.Context, f figuresRead, ranked []candidate) bool {
	signal := f.act.by.signal
	if !f.act.on.layers || len(ranked) < 2 || ctx.Now().Sub(a.met) >= layersTimeout {
		return false
	}
	r := f.m.Readings[signal]
	level := threshold.Quantity(f.act.by.text, r.Capacity)
	if ranked[0].uses(signals[signal].resource, f.act.on) >= level.Value()-r.Available {
		return false
	}
	if !slices.ContainsFunc(ranked, func(c candidate) bool { return c.layersBefore(a.met) }) {
		return false
	}
	ctx.After(layersLook, lookAgain{})
	return true
}

// newcomerDue reports whether a running pod has no figures yet while memory is short: it may be the one that uses it. The
// figures are read again, for a little while.
func (a *actor) newcomerDue(ctx supervisors.Context, f figuresRead) bool {
	if f.act.by.signal.kind() != v1.NodeMemoryPressure || ctx.Now().Sub(a.met) >= newcomerTimeout {
		return false
	}
	if !slices.ContainsFunc(a.opts.Board.Now().Pods, func(p board.Pod) bool {
		return (p.Phase == "initializing" || p.Phase == "running") && p.Failure == nil && p.Ending == "" &&
			evictable(p.Pod, a.opts.Static) && !slices.ContainsFunc(f.stats, func(s api.PodStats) bool {
			return s.PodRef.UID == string(p.Pod.UID) && s.Memory != nil
		})
	}) {
		return false
	}
	ctx.After(newcomerLook, lookAgain{})
	return true
}

// layersBefore reports whether a container's writable layer was last measured before that time, or never.
func (c candidate) layersBefore(at time.Time) bool {
	for i := range c.stats.Containers {
		if fs := c.stats.Containers[i].Rootfs; fs == nil || fs.Time.Time.Before(at) {
			return true
		}
	}
	return false
}
