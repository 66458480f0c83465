package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

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
