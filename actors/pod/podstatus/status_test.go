package podstatus

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/settings"
)

// While the node's addresses may still change, a status omits them.
func TestAddressesThatAreUnsettled(t *testing.T) {
	for _, c := range []struct {
		unsettled, host bool
		hostIP, podIP   string
	}{{false, false, "192.0.2.1", "10.0.0.1"}, {false, true, "192.0.2.1", "192.0.2.1"}, {true, false, "", "10.0.0.1"},
		{true, true, "", ""}} {
		p := &Pod{State: &known.State{Pod: &v1.Pod{Spec: v1.PodSpec{HostNetwork: c.host}}, Set: settings.Settings{
			HostIPs: func() []string { return []string{"192.0.2.1"} }, Unsettled: func() bool { return c.unsettled },
		}}}
		p.Sandboxes.LastIPs = []string{"10.0.0.1"}
		var s v1.PodStatus
		if p.addresses(&s); s.HostIP != c.hostIP || s.PodIP != c.podIP || len(s.HostIPs) > 0 != (c.hostIP != "") ||
			len(s.PodIPs) > 0 != (c.podIP != "") {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// A pod that is initialized again in a new sandbox is pending until that is complete.
func TestAPodThatIsInitializedAgainIsPending(t *testing.T) {
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: make([]v1.Container, 1), Containers: make([]v1.Container, 1)}}
	s := &v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
		ContainerStatuses:     []v1.ContainerStatus{{LastTerminationState: ended}},
	}
	if got := phaseOf(pod, s); got != v1.PodPending {
		t.Errorf("while its init container runs it is %s", got)
	}
	if s.InitContainerStatuses[0].State = ended; phaseOf(pod, s) != v1.PodRunning {
		t.Errorf("when that has ended it is %s", phaseOf(pod, s))
	}
}

func TestLastWordsAreShared(t *testing.T) {
	ended := func(message string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: message}}
	}
	const share = 12 << 10 / 4
	s := &v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{State: ended(strings.Repeat("i", share+1))}},
		ContainerStatuses: []v1.ContainerStatus{
			{State: ended(strings.Repeat("c", share)), LastTerminationState: ended(strings.Repeat("l", 4096))},
			{State: ended(strings.Repeat("x", share-1) + "ä")},
			{},
		},
	}
	shareLastWords(s)
	for got, want := range map[string]string{
		s.InitContainerStatuses[0].State.Terminated.Message:            strings.Repeat("i", share),
		s.ContainerStatuses[0].State.Terminated.Message:                strings.Repeat("c", share),
		s.ContainerStatuses[0].LastTerminationState.Terminated.Message: strings.Repeat("l", share),
		s.ContainerStatuses[1].State.Terminated.Message:                strings.Repeat("x", share-1),
	} {
		if got != want {
			t.Errorf("%.1q… has %d bytes, want %d", got, len(got), len(want))
		}
	}
	shareLastWords(&v1.PodStatus{})
}
