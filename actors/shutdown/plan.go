package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

const critical = translate.SystemCriticalPriority

// Groups returns the settings as one list, lowest priority first. Each group has the pods from its priority up to the next,
// and their time to end. An empty list means that the machine's shutdown is not delayed.
func Groups(whole, forCritical time.Duration, byPriority []kubeletconfig.ShutdownGracePeriodByPodPriority) []Group {
	out := make([]Group, 0, len(byPriority))
	for _, g := range byPriority {
		out = append(out, Group{int64(g.Priority), time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	if len(out) == 0 && whole > 0 {
		out = []Group{{0, whole - forCritical}, {critical, forCritical}}
	}
	slices.SortFunc(out, func(x, y Group) int { return cmp.Compare(x.Priority, y.Priority) })
	return out
}

// Group is the pods from one priority up to the next group's, with their time to end.
type Group struct {
	Priority int64
	Time     time.Duration
}

// total is how long a shutdown takes at most.
func total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Time
	}
	return sum
}

// members returns the running pods that end with group i. Pods below the first group belong to it.
func members(groups []Group, i int, pods []board.Pod) []*v1.Pod {
	var out []*v1.Pod
	for k := range pods {
		if p := &pods[k]; p.Phase != finished && p.Phase != held && groupOf(groups, p.Pod) == i {
			out = append(out, p.Pod)
		}
	}
	return out
}

// Phases of pods without running containers: ended, and not started.
const finished, held = "finished", "held"

// groupOf is the index of the pod's group. As with the kubelet, the spec's priority decides, 0 if there is none: a static pod is
// critical for admission, and here an ordinary one, which keeps its grace period. Unlike in a kubelet, the name of a system
// class is enough: pods that others depend on would end first (kubernetes/kubernetes#113940, #133442).
func groupOf(groups []Group, pod *v1.Pod) int {
	priority := translate.Priority(pod)
	of := 0
	for i, g := range groups {
		if g.Priority <= priority {
			of = i
		}
	}
	return of
}

// failure returns the failure of a pod of the group. Its grace period is the pod's own, limited by the group's time.
func failure(g Group, pod *v1.Pod) messages.PodFailure {
	grace := min(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30), int64(g.Time/time.Second))
	return messages.PodFailure{Reason: messages.ReasonTerminated, Message: messages.TerminatedMessage,
		Disruption: messages.TerminatedMessage, Grace: &grace}
}
