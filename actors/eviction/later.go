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

// What a runtime does in its own time is waited for here, before a pod ends that need not: containerd frees the writable layers
// of containers that were removed a little later, and measures those of the others every ten seconds.

const (
	// freedTimeout is how long the space of removed containers is waited for.
	freedTimeout = 3 * time.Second
	freedLook    = 250 * time.Millisecond
	// layersTimeout is how long figures of writable layers are waited for that are not older than the shortage.
	layersTimeout = 15 * time.Second
	layersLook    = time.Second
	// newcomerTimeout is how long the figures of a pod are waited for that has just begun to run.
	newcomerTimeout = 1500 * time.Millisecond
	newcomerLook    = 250 * time.Millisecond
)

// lookAgain is when it is measured again.
type lookAgain struct{}

// onContainersReclaimed notes that something was removed whose space comes later.
func (a *actor) onContainersReclaimed(ctx supervisors.Context, m messages.ContainersReclaimed) {
	ctx.Log().Info("removed dead containers, sandboxes and logs", "objects", m.Removed, "freedBytes", m.Freed, "problem", m.Lack)
	if m.Removed > 0 {
		a.removed = ctx.Now()
	}
	a.reclaimEnded(ctx, messages.Runtime)
}

// freeing says that what was removed may still bring space, and has it looked at again.
func (a *actor) freeing(ctx supervisors.Context, act action) bool {
	if act.kind != evict || !act.on.layers || ctx.Now().Sub(a.removed) >= freedTimeout {
		return false
	}
	ctx.After(freedLook, lookAgain{})
	return true
}

// layersDue says that the pod that comes first by figures older than the shortage may be the wrong one, and has them read again.
// For one whose end brings enough nothing is waited for.
func (a *actor) layersDue(ctx supervisors.Context, f figured, ranked []candidate) bool {
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

// newcomerDue says that a pod runs of which there are no figures yet while memory is short: it may be the one that uses it. The
// figures are read again, for a little while.
func (a *actor) newcomerDue(ctx supervisors.Context, f figured) bool {
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

// layersBefore says that what a container has written to its root was measured before that time last, or never.
func (c candidate) layersBefore(at time.Time) bool {
	for i := range c.stats.Containers {
		if fs := c.stats.Containers[i].Rootfs; fs == nil || fs.Time.Time.Before(at) {
			return true
		}
	}
	return false
}
