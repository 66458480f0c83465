package eviction

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// unhurried reports whether an awaited pod has more time than a hard threshold gives.
func (a *actor) unhurried() bool {
	for _, grace := range a.leaving {
		if grace > hardGrace {
			return true
		}
	}
	return false
}

// forgetGone forgets the pods that outlived their wait and are no longer on the node.
func (a *actor) forgetGone() {
	if len(a.awaited) == 0 {
		return
	}
	here := map[types.UID]bool{}
	for _, p := range a.opts.Board.Now().Pods {
		here[p.Pod.UID] = true
	}
	maps.DeleteFunc(a.awaited, func(uid types.UID, _ bool) bool { return !here[uid] })
}

// gone reports whether the pod has nothing running and no volumes left.
func gone(p *board.Pod) bool { return p.Phase == "finished" }

// hasten reduces the grace periods of leaving pods to the one of a hard threshold. Their end may suffice, so that no other pod
// is evicted.
func (a *actor) hasten(ctx supervisors.Context, leaving map[types.UID]int64) {
	for _, p := range a.opts.Board.Now().Pods {
		if leaving[p.Pod.UID] <= hardGrace || p.Failure == nil {
			continue
		}
		ctx.Log().Warn("shortened the grace period of an evicted pod: a hard threshold is met too", "pod",
			p.Pod.Namespace+"/"+p.Pod.Name, "podUID", p.Pod.UID, "seconds", hardGrace)
		why := *p.Failure
		why.Grace = ptr.To[int64](hardGrace)
		ctx.Tell(messages.Pods, messages.EvictPod{UID: string(p.Pod.UID), Failure: why})
		leaving[p.Pod.UID] = hardGrace
	}
}

// await waits for the end of pods before the next action, since their end may suffice. leaving has their grace periods in
// seconds.
func (a *actor) await(ctx supervisors.Context, leaving map[types.UID]int64) {
	a.waits++
	generation := a.waits
	stopped, stop := context.WithCancel(context.Background())
	a.busy, a.leaving, a.stopWait = true, leaving, stop
	published := a.opts.Board
	limit := leaveTimeout + podspec.Grace(slices.Max(slices.Collect(maps.Values(leaving))))
	ctx.Do(supervisors.Work{Name: "await the end of evicted pods", Timeout: limit, Run: func(ctx context.Context) any {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		s := published.Now()
		for life, anew := s.Life, false; ; {
			var there []types.UID
			anew = anew || !s.Life.Equal(life) || !known(s)
			lost := anew && known(s) // the eviction was sent before pods knew all pods
			for i := range s.Pods {
				p := &s.Pods[i]
				if _, ok := leaving[p.Pod.UID]; ok && !gone(p) && (p.Failure != nil || !lost) {
					there = append(there, p.Pod.UID)
				}
			}
			var err error
			if len(there) == 0 {
				return leaveEnded{generation: generation}
			}
			if s, err = published.After(ctx, s.Version); err != nil {
				return leaveEnded{generation, there}
			}
		}
	}})
}

// stopAwaiting ends the wait for leaving pods.
func (a *actor) stopAwaiting() {
	a.stopWait()
	a.busy, a.leaving = false, nil
}

// onLeft measures the effect of the pods' end. A pod that does not end is not awaited again.
func (a *actor) onLeft(ctx supervisors.Context, m leaveEnded) {
	if m.generation != a.waits || a.leaving == nil {
		return // that wait was stopped
	}
	a.stopAwaiting()
	for _, uid := range m.there {
		a.awaited[uid] = true
		ctx.Log().Warn("an evicted pod did not terminate in time; eviction continues", "podUID", uid)
	}
	a.measureAgain(ctx)
}
