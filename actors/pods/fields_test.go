package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
)

// The unsupported fields are computed once per version of a pod, however often all pods are published.
func TestUnsupportedFieldsAreFoundOnce(t *testing.T) {
	pod := &v1.Pod{}
	pod.UID = types.UID("u")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}}}
	e := &entry{wanted: &desiredPod{pod: pod, source: messages.APIServer}}
	first := e.unsupported()
	if first == nil || e.unsupported() != first {
		t.Errorf("%+v", first)
	}
	changed := pod.DeepCopy()
	changed.Spec.Volumes = nil
	e.wanted = &desiredPod{pod: changed, source: messages.APIServer}
	if why := e.unsupported(); why != nil {
		t.Errorf("the next version is held: %+v", why)
	}
	e.wanted = &desiredPod{pod: pod, source: messages.APIServer}
	if again := e.unsupported(); again == nil || again == first {
		t.Errorf("%+v", again)
	}
}
