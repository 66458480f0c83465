package containers

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// A terminating pod is chosen over its successor only by UID.
func TestThePodThatIsWanted(t *testing.T) {
	pod := func(name, uid string, ending bool) board.Pod {
		p := board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}}
		if ending {
			p.EndingSince = time.Unix(1, 0)
		}
		return p
	}
	published := board.New()
	published.Publish(board.Snapshot{Pods: []board.Pod{
		pod("web", "old", true), pod("web", "new", false), pod("web", "older", true), pod("gone", "last", true),
	}})
	h := &Handlers{conf: Config{Board: published}}
	for name, want := range map[Name]string{
		{Namespace: "ns", Pod: "web"}:             "new",
		{Namespace: "ns", Pod: "web", UID: "old"}: "old",
		{Namespace: "ns", Pod: "gone"}:            "last",
	} {
		if got, err := h.Pod(name); err != nil || string(got.Pod.UID) != want {
			t.Errorf("%+v: %v, want %s", name, err, want)
		}
	}
	if got, err := h.Pod(Name{Namespace: "ns", Pod: "none"}); err == nil {
		t.Errorf("found %s", got.Pod.UID)
	}
}

func TestID_NamesTheContainerOnce(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i", Image: "x"}}, Containers: []v1.Container{{Name: "c", Image: "x"}}}}
	for _, name := range []string{"c", "i"} {
		c := ChosenContainer{Container: name, Status: &v1.ContainerStatus{Name: name}, Pod: &board.Pod{Pod: pod, Status: &v1.PodStatus{},
			Waiting: &messages.Reason{Code: messages.ReasonErrImageNeverPull, Container: name}}}
		want := `container "` + name + `" of pod "web" does not run: image x is not on this node, and imagePullPolicy is Never`
		if _, err := c.ID(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
