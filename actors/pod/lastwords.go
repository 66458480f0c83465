package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// lastWordsBytes is what the termination messages of all containers of a pod have together in its status, in equal shares
// (v1.Container.TerminationMessagePath).
const lastWordsBytes = 12 << 10

// shareLastWords shortens the messages that are longer than their container's share.
func shareLastWords(s *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	share := lastWordsBytes / max(len(lists[0])+len(lists[1])+len(lists[2]), 1)
	for _, list := range lists {
		for i := range list {
			for _, end := range []*v1.ContainerStateTerminated{list[i].State.Terminated,
				list[i].LastTerminationState.Terminated} {
				if end != nil && len(end.Message) > share {
					end.Message = strings.ToValidUTF8(end.Message[:share], "") // the cut may have gone through a letter
				}
			}
		}
	}
}
