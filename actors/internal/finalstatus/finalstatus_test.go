package finalstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/messages"
)

// Whatever was known of a pod: in its last status nothing runs, the phase is final, no container that ended before is another
// now, and settling it again changes nothing.
func TestSettledIsFinal(t *testing.T) {
	state := rapid.Custom(func(t *rapid.T) v1.ContainerState {
		switch rapid.IntRange(0, 3).Draw(t, "state") {
		case 0:
			return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
		case 1:
			return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		case 2:
			return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: int32(rapid.IntRange(0, 1).Draw(t,
				"code"))}}
		default:
			return v1.ContainerState{}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		spec, s := &v1.PodSpec{}, &v1.PodStatus{Phase: rapid.SampledFrom([]v1.PodPhase{v1.PodPending, v1.PodRunning,
			v1.PodFailed}).Draw(t, "phase")}
		fill := func(prefix string) (specs []v1.Container, all []v1.ContainerStatus) {
			for i := range rapid.IntRange(0, 3).Draw(t, prefix) {
				name := prefix + string(rune('0'+i))
				specs = append(specs, v1.Container{Name: name})
				all = append(all, v1.ContainerStatus{Name: name, State: state.Draw(t, name),
					LastTerminationState: v1.ContainerState{}})
			}
			return specs, all
		}
		spec.InitContainers, s.InitContainerStatuses = fill("init")
		spec.Containers, s.ContainerStatuses = fill("main")
		before := s.DeepCopy()
		Settle(spec, s, time.Unix(0, 0))
		for i, c := range s.ContainerStatuses {
			if c.State.Running != nil || before.ContainerStatuses[i].State.Terminated != nil &&
				!equality.Semantic.DeepEqual(c, before.ContainerStatuses[i]) {
				t.Fatalf("%+v became %+v", before.ContainerStatuses[i], c)
			}
		}
		if again := s.DeepCopy(); !Final(s.Phase) {
			t.Fatalf("phase %s", s.Phase)
		} else if Settle(spec, again, time.Unix(9, 0)); !equality.Semantic.DeepEqual(again, s) {
			t.Fatalf("again: %+v", again)
		}
	})
}

// The runtime's end of a container replaces an older state, and never a newer one.
func TestLearn(t *testing.T) {
	at := time.Unix(1000, 0)
	s := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "ran", ContainerID: "x://1", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "ended later", ContainerID: "x://3", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 7,
			FinishedAt: metav1.NewTime(at)}}},
		{Name: "unknown"},
	}}
	Learn(s, []messages.ContainerFact{
		{Name: "ran", ID: "2", Attempt: 1, State: messages.ContainerExited, ExitCode: 3, FinishedAt: at},
		{Name: "ran", ID: "1", State: messages.ContainerExited, ExitCode: 4, FinishedAt: at},
		{Name: "ended later", ID: "2", State: messages.ContainerExited, FinishedAt: at.Add(-time.Hour)},
		{Name: "unknown", ID: "9", State: messages.ContainerRunning},
	})
	if c := s.ContainerStatuses[0]; c.Ready || c.RestartCount != 1 || c.ContainerID != "x://2" || c.State.Terminated == nil ||
		c.State.Terminated.ExitCode != 3 {
		t.Errorf("it ended as %+v", c)
	}
	if end := s.ContainerStatuses[1].State.Terminated; end.ExitCode != 7 || s.ContainerStatuses[2].State.Terminated != nil {
		t.Errorf("the others: %+v", s.ContainerStatuses[1:])
	}
}
