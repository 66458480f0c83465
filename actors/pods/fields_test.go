package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// What a pod cannot have is looked for once for each version of it, however often all pods are published.
func TestUnsupportedFieldsAreFoundOnce(t *testing.T) {
	looks := 0
	a := New(Options{Board: board.New(), Dir: t.TempDir(), Here: Here{
		IsDevice: func(v1.ResourceName) bool { looks++; return true },
	}})("pods").(*actor)
	pod := &v1.Pod{}
	pod.UID = types.UID("u")
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
		Limits: v1.ResourceList{"example.com/gpu": resource.MustParse("1")},
	}}}
	e := &entry{want: &want{pod, messages.APIServer}}
	first := a.unsupported(e)
	if first == nil || a.unsupported(e) != first || looks != 1 {
		t.Errorf("%+v after %d looks", first, looks)
	}
	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Resources.Limits = nil
	e.want = &want{changed, messages.APIServer}
	if why := a.unsupported(e); why != nil {
		t.Errorf("the next version is held: %+v", why)
	}
	e.want = &want{pod, messages.APIServer}
	if a.unsupported(e) == nil || looks != 2 {
		t.Errorf("%d looks", looks)
	}
}
