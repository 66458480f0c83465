package server

import (
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin"
)

// tracker makes the lines of one stream: it remembers what was sent, and tells what is new. It is pure.
type tracker struct {
	chosen filter
	begun  bool
	pods   map[types.UID]*board.Pod
	node   admin.Node
}

// next is what changed since the call before; false when nothing did. The first call tells everything.
func (t *tracker) next(s *board.Snapshot, node admin.Node) (admin.Change, bool) {
	change := admin.Change{Version: s.Version, At: s.At, Full: !t.begun}
	pods := make(map[types.UID]*board.Pod, len(t.pods))
	for _, p := range t.chosen.choose(s) {
		pods[p.Pod.UID] = p
		if old := t.pods[p.Pod.UID]; old == nil || !samePod(old, p) {
			change.Pods = append(change.Pods, podView(p))
		}
	}
	for uid, p := range t.pods {
		if pods[uid] == nil {
			change.Gone = append(change.Gone, admin.Ref{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(uid)})
		}
	}
	if !t.begun || !reflect.DeepEqual(t.node, node) {
		change.Node = &node
	}
	t.begun, t.pods, t.node = true, pods, node
	return change, change.Full || change.Node != nil || len(change.Pods) > 0 || len(change.Gone) > 0
}

// samePod compares what is shown of a pod. Pointers first: an object that is shared has not changed.
func samePod(x, y *board.Pod) bool {
	return x.Source == y.Source && x.Phase == y.Phase && x.Ending == y.Ending && same(x.Pod, y.Pod) &&
		same(x.Status, y.Status) && same(x.Waiting, y.Waiting) && same(x.Quarantine, y.Quarantine)
}

func same[T any](x, y *T) bool { return x == y || reflect.DeepEqual(x, y) }
