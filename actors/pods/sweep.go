package pods

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// sweep tells those who clean up what must stay.
func (a *actor) sweep(ctx supervisors.Context) {
	heard := a.allHeard() && a.loaded
	wanted := make(map[string]bool, len(a.entries))
	active := map[string]*v1.Pod{}
	for uid, e := range a.entries {
		if e.state != unclaimed { // those that wait for their predecessor, too
			wanted[uid] = true
		}
		if e.runs() {
			active[uid] = e.pod
		}
		if e.hasActor() && e.taken != e.generation {
			a.tell(ctx, e)
		}
	}
	a.tellStatuses(ctx)
	a.tellObjects(ctx, true)
	ctx.Tell(messages.Runtime, messages.KeepContainers{At: ctx.Now(), Wanted: wanted, Heard: heard})
	if a.audited { // what is not known of may run, in a cgroup of its own
		ctx.Tell(messages.Resources, messages.PodCgroupsWanted{UIDs: wanted, Heard: heard, Active: active})
	}
	if heard && a.audited { // otherwise a pod that is not known of may still run, and need its volumes
		ctx.Tell(messages.Volumes, messages.PodFoldersWanted{UIDs: wanted})
		for _, e := range a.entries {
			if e.state == unclaimed { // it was taken away while the agent was not there
				a.keep(ctx, e, record{})
			}
		}
	}
	if a.loaded && a.unsaved && !a.saving {
		a.save(ctx)
	}
}

// tellObjects tells which pods use objects of the API server, where that has changed, or again. On a standalone node none does.
func (a *actor) tellObjects(ctx supervisors.Context, again bool) {
	var using []*entry
	for _, e := range a.entries {
		if (e.runs() || e.ends()) && e.record.Final == nil && objectset.OfAPIServer(e.pod) {
			using = append(using, e)
		}
	}
	slices.SortFunc(using, func(x, y *entry) int { return cmp.Compare(x.order, y.order) })
	users := make([]*v1.Pod, len(using))
	for i, e := range using {
		users[i] = e.pod
	}
	a.uses = a.uses || len(users) > 0
	if a.uses && (again || !slices.Equal(users, a.users)) {
		a.users = users
		ctx.Tell(messages.Objects, messages.ObjectsWanted{Pods: users})
	}
}
