package status

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// mergeConditions gives the conditions that the pod is to have: those that are wanted, and those of others as they are, in
// the order in which the API server has them. out is the status as merged so far.
func mergeConditions(pod *v1.Pod, out, wanted *v1.PodStatus, generation int64, now time.Time) []v1.PodCondition {
	merged := slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c v1.PodCondition) bool {
		return len(wanted.Conditions) > 0 && resizes(c.Type) && condition(wanted, c.Type) == nil // the resize was taken back
	})
	for _, c := range wanted.Conditions {
		c = settle(pod, out.Phase, c)
		c.ObservedGeneration = generation
		i := slices.IndexFunc(merged, func(o v1.PodCondition) bool { return o.Type == c.Type })
		if i < 0 {
			c.LastTransitionTime = since(c, wanted, now)
			merged = append(merged, c)
			continue
		}
		o := merged[i]
		switch {
		case c.Type == v1.PodScheduled && o.Status == v1.ConditionTrue:
			merged[i].ObservedGeneration = generation // the rest is the scheduler's word
			continue
		case o.Status == c.Status:
			c.LastTransitionTime = o.LastTransitionTime
		default:
			c.LastTransitionTime = since(c, wanted, now)
		}
		c.LastProbeTime = o.LastProbeTime
		merged[i] = c
	}
	return merged
}

// resizes says that a condition is there only while a resize is pending or under way. It is the node agent's own.
func resizes(t v1.PodConditionType) bool {
	return t == v1.PodResizePending || t == v1.PodResizeInProgress
}

// since is when a condition became what it is: as wanted, unless it was settled to be something else.
func since(c v1.PodCondition, wanted *v1.PodStatus, now time.Time) metav1.Time {
	w := condition(wanted, c.Type)
	if w == nil || w.Status != c.Status || w.LastTransitionTime.IsZero() {
		return metav1.NewTime(now.Truncate(time.Second))
	}
	return *seconds(&w.LastTransitionTime)
}

// settle corrects a wanted condition by what only the API server's object tells: that the pod has ended, and how its readiness
// gates are (KEP-580).
func settle(pod *v1.Pod, phase v1.PodPhase, c v1.PodCondition) v1.PodCondition {
	if c.Status != v1.ConditionTrue {
		return c
	}
	switch {
	case (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && finalstatus.Final(phase):
		c.Status, c.Reason, c.Message = v1.ConditionFalse, finalstatus.NotReady(phase), ""
	case c.Type == v1.PodReady:
		if closed := podspec.GatesClosed(pod); closed != "" {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, "ReadinessGatesNotReady", closed
		}
	}
	return c
}

func condition(s *v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// ready says whether the status calls the pod ready.
func ready(s *v1.PodStatus) bool {
	c := condition(s, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
