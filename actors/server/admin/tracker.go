package admin

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// tracker makes the lines of one stream: it remembers what was sent, and tells what is new. It is pure.
type tracker struct {
	chosen   filter
	view     func(*board.Pod) api.Pod
	begun    bool
	complete bool // a complete line was sent
	life     time.Time
	pods     map[types.UID]tracked
	node     api.Node
}

// tracked is a pod as it was sent last.
type tracked struct {
	pod *board.Pod
	// sure says that the actor that publishes would know if it ran: when it leaves, it is gone. A life that has only begun
	// leaves out what it has not heard of yet.
	sure bool
}

// next is what changed since the call before; false when nothing did. The first call tells everything, and so does the first
// one that knows everything.
func (t *tracker) next(s *board.Snapshot, node api.Node) (api.Change, bool) {
	complete := s.Complete()
	change := api.Change{Version: s.Version, At: s.At, Full: !t.begun || complete && !t.complete}
	pods := make(map[types.UID]tracked, len(t.pods))
	for _, p := range t.chosen.choose(s) {
		pods[p.Pod.UID] = tracked{pod: p, sure: s.Audited}
		if old, ok := t.pods[p.Pod.UID]; change.Full || !ok || !samePod(old.pod, p) {
			change.Pods = append(change.Pods, t.view(p))
		}
	}
	for uid, old := range t.pods {
		if _, there := pods[uid]; there {
			continue
		}
		old.sure = old.sure && s.Life.Equal(t.life)
		if complete || old.sure {
			change.Gone = append(change.Gone, api.Ref{Namespace: old.pod.Pod.Namespace, Name: old.pod.Pod.Name,
				UID: string(uid)})
		} else {
			pods[uid] = old
		}
	}
	if change.Full || !reflect.DeepEqual(t.node, node) {
		change.Node = &node
	}
	t.begun, t.complete, t.life, t.pods, t.node = true, t.complete || complete, s.Life, pods, node
	return change, change.Full || change.Node != nil || len(change.Pods) > 0 || len(change.Gone) > 0
}

// samePod compares what is shown of a pod. Pointers first: an object that is shared has not changed.
func samePod(x, y *board.Pod) bool {
	return x.Source == y.Source && x.Phase == y.Phase && x.Ending == y.Ending && same(x.Pod, y.Pod) &&
		same(x.Status, y.Status) && same(x.Waiting, y.Waiting) && same(x.Quarantine, y.Quarantine)
}

func same[T any](x, y *T) bool { return x == y || reflect.DeepEqual(x, y) }
