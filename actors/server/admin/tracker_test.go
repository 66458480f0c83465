package admin

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// A pods actor that has just started knows no pods. They are not reported gone until a later snapshot proves it.
func TestPodsOutliveTheActorThatPublishesThem(t *testing.T) {
	web, db := pod("ns", "web", "u1", nil), pod("ns", "db", "u2", nil)
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	unheard := []messages.Address{messages.Submit}
	type step struct {
		why  string
		s    board.Snapshot
		gone []string
		full bool
	}
	for name, steps := range map[string][]step{
		"the actor is restarted": {
			{"all", board.Snapshot{Life: first, Audited: true, Pods: []board.Pod{db, web}}, nil, true},
			{"it knows nothing", board.Snapshot{Life: second, Unheard: unheard}, nil, false},
			{"nor what runs", board.Snapshot{Life: second}, nil, false},
			{"one source is late", board.Snapshot{Life: second, Audited: true, Unheard: unheard, Pods: []board.Pod{web}}, nil,
				false},
			{"one left meanwhile", board.Snapshot{Life: second, Audited: true, Pods: []board.Pod{web}}, []string{"u2"}, false},
			{"the other leaves", board.Snapshot{Life: second, Audited: true}, []string{"u1"}, false},
		},
		"a pod ends while a source is not heard": {
			{"both", board.Snapshot{Life: first, Audited: true, Unheard: unheard, Pods: []board.Pod{db, web}}, nil, true},
			{"one ended", board.Snapshot{Life: first, Audited: true, Unheard: unheard, Pods: []board.Pod{db}}, []string{"u1"},
				false},
		},
		"a pod is withdrawn that may run already": {
			{"held", board.Snapshot{Life: first, Pods: []board.Pod{web}}, nil, true},
			{"not wanted", board.Snapshot{Life: first}, nil, false},
			{"it runs", board.Snapshot{Life: first, Audited: true, Pods: []board.Pod{web}}, nil, true},
			{"it has ended", board.Snapshot{Life: first, Audited: true}, []string{"u1"}, false},
		},
	} {
		seen := tracker{view: podView}
		for i, step := range steps {
			step.s.Version = uint64(i + 1)
			change, _ := seen.next(&step.s, api.Node{Audited: step.s.Audited, Unheard: step.s.Unheard})
			var gone []string
			for _, ref := range change.Gone {
				gone = append(gone, ref.UID)
			}
			if !slices.Equal(gone, step.gone) || change.Full != step.full || change.Full && len(change.Pods) != len(step.s.Pods) {
				t.Errorf("%s, %s: gone %v, full %v, %d pods", name, step.why, gone, change.Full, len(change.Pods))
			}
			if change.Full && change.Complete() != (step.s.Audited && len(step.s.Unheard) == 0) {
				t.Errorf("%s, %s: complete %v", name, step.why, change.Complete())
			}
		}
	}
}

func pod(namespace, name, uid string, status *v1.PodStatus) board.Pod {
	return board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}, Status: status}
}
