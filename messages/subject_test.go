package messages

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestThePodOfAMessage(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	for _, msg := range []any{
		ReadPod{UID: "u"}, StopContainer{UID: "u", Pod: &v1.Pod{}}, PullImage{Key: ImageKey{UID: "u"}}, RunContainer{Pod: pod},
		PodWanted{Pod: pod}, PodObserved{Facts: PodFacts{UID: "u"}}, MountVolumes{UID: "u"},
	} {
		for range 2 { // the second run uses the cache
			if got := PodOf(msg); got != "u" {
				t.Errorf("%T: %q", msg, got)
			}
		}
	}
	others := struct{ UID string }{"u"}
	for _, msg := range []any{nil, Started{}, &others, others, PodWanted{}, RecordEvent{}, "u"} {
		if got := PodOf(msg); got != "" {
			t.Errorf("%T: %q", msg, got)
		}
	}
}
