package pods

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// tellObjects tells which pods use objects of the API server, where that has changed, or again. A node on its own has none.
func (a *actor) tellObjects(ctx supervisors.Context, again bool) {
	var users []*v1.Pod
	for uid, e := range a.entries {
		if !e.gone && a.finished[uid] == nil && objectset.OfAPIServer(e.pod) {
			users = append(users, e.pod)
		}
	}
	slices.SortFunc(users, func(x, y *v1.Pod) int {
		return cmp.Compare(a.entries[string(x.UID)].order, a.entries[string(y.UID)].order)
	})
	a.uses = a.uses || len(users) > 0
	if a.uses && (again || !slices.Equal(users, a.users)) {
		a.users = users
		ctx.Tell(messages.Objects, messages.ObjectsWanted{Pods: users})
	}
}
