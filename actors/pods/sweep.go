package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// sweep tells those who clean up what must stay.
func (a *actor) sweep(ctx supervisors.Context) {
	heard := a.heard() && a.loaded
	wanted := make(map[string]bool, len(a.entries))
	for uid, e := range a.entries {
		wanted[uid] = true
		if e.taken != e.turn && !e.gone {
			a.tell(ctx, e)
		}
	}
	for _, w := range a.wishes {
		for _, p := range w.Pods { // those that wait for their predecessor, too
			wanted[string(p.UID)] = true
		}
	}
	a.tellStatuses(ctx)
	a.tellObjects(ctx, true)
	ctx.Tell(messages.Runtime, messages.KeepContainers{At: ctx.Now(), Wanted: wanted, Heard: heard})
	if a.audit != nil { // what is not known of may run, in a group of its own
		ctx.Tell(messages.Resources, messages.PodCgroupsWanted{UIDs: wanted, Heard: heard, Active: a.active()})
	}
	defer func() {
		if a.loaded && a.unsaved && !a.saving {
			a.save(ctx)
		}
		if a.loaded && a.failing.stale && !a.failing.saving {
			a.saveFailing(ctx)
		}
	}()
	if !heard || a.audit == nil { // a pod that is not known of may still run, and needs its volumes
		return
	}
	ctx.Tell(messages.Volumes, messages.PodFoldersWanted{UIDs: wanted})
	for uid := range a.finished {
		if !wanted[uid] { // it was taken away while the agent was not there
			delete(a.finished, uid)
			a.unsaved = true
		}
	}
	for uid := range a.failing.pods {
		if !wanted[uid] {
			a.dropFailing(ctx, uid)
		}
	}
}

// active are the pods that run or are to run.
func (a *actor) active() map[string]*v1.Pod {
	out := map[string]*v1.Pod{}
	for uid, e := range a.entries {
		if e.ending == nil && !e.gone && a.finished[uid] == nil {
			out[uid] = e.pod
		}
	}
	return out
}
