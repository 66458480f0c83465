package status

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
)

// merge returns the status to write: the agent's own fields from the desired status, all others as the API server has them.
// The result shares no mutable data with the arguments.
func merge(pod *v1.Pod, wanted *v1.PodStatus, now time.Time) *v1.PodStatus {
	out := pod.Status.DeepCopy()
	generation := max(wanted.ObservedGeneration, out.ObservedGeneration)
	if isMirror(pod) {
		generation = 0 // of the static pod, which has none; not of the mirror pod (KEP-5067)
	}
	out.ObservedGeneration = generation
	mergePhase(out, wanted)
	mergeAddresses(out, wanted)
	if out.StartTime == nil {
		out.StartTime = seconds(wanted.StartTime)
	}
	if out.QOSClass == "" { // the API server sets it, and it is immutable
		out.QOSClass = wanted.QOSClass
	}
	if wanted.Resources != nil {
		out.AllocatedResources, out.Resources = wanted.AllocatedResources, wanted.Resources
	}
	out.InitContainerStatuses = mergeContainers(out.InitContainerStatuses, wanted.InitContainerStatuses, pod.Spec.InitContainers,
		&pod.Spec)
	out.ContainerStatuses = mergeContainers(out.ContainerStatuses, wanted.ContainerStatuses, pod.Spec.Containers, &pod.Spec)
	out.EphemeralContainerStatuses = mergeEphemeral(out.EphemeralContainerStatuses, wanted.EphemeralContainerStatuses)
	out.Conditions = mergeConditions(pod, out, wanted, generation, now)
	return out
}

// mergePhase never replaces a final phase: others have acted on it.
func mergePhase(out, wanted *v1.PodStatus) {
	if wanted.Phase == "" || (finalstatus.Final(out.Phase) && out.Phase != wanted.Phase) {
		return
	}
	out.Phase, out.Reason, out.Message = wanted.Phase, wanted.Reason, wanted.Message
}

// mergeAddresses keeps the observed addresses once the pod has none. Other clients still look them up.
func mergeAddresses(out, wanted *v1.PodStatus) {
	if wanted.HostIP != "" {
		out.HostIP, out.HostIPs = wanted.HostIP, wanted.HostIPs
	}
	if wanted.PodIP != "" {
		out.PodIP, out.PodIPs = wanted.PodIP, wanted.PodIPs
	}
}

func mergeContainers(observed, wanted []v1.ContainerStatus, specs []v1.Container, pod *v1.PodSpec) []v1.ContainerStatus {
	if len(wanted) == 0 {
		return observed // the runtime has none, but they existed
	}
	out := make([]v1.ContainerStatus, 0, len(wanted))
	for i := range wanted {
		s := *wanted[i].DeepCopy()
		truncate(&s)
		if o := named(observed, s.Name); o != nil {
			mergeContainer(&s, o, find.In(specs, func(c *v1.Container) bool { return c.Name == s.Name }), pod)
		}
		out = append(out, s)
	}
	return out
}

// mergeContainer copies the fields of the observed status that must not be lost.
func mergeContainer(s, observed *v1.ContainerStatus, spec *v1.Container, pod *v1.PodSpec) {
	s.RestartCount = max(s.RestartCount, observed.RestartCount) // garbage-collected containers are no longer counted
	if s.AllocatedResourcesStatus == nil {
		s.AllocatedResourcesStatus = observed.AllocatedResourcesStatus
	}
	if s.LastTerminationState == (v1.ContainerState{}) && s.RestartCount > 0 {
		s.LastTerminationState = observed.LastTerminationState
	}
	// The API server rejects the whole status if a container that ended for good runs again.
	if ended := observed.State.Terminated; ended != nil && s.State.Terminated == nil && !mayRestart(spec, pod, ended.ExitCode) {
		s.State, s.Ready, s.Started = observed.State, observed.Ready, observed.Started
	}
}

// mayRestart is the API server's rule for containers that ended with this code. If one container of the pod may restart all,
// any of them may run again (KEP-5532).
func mayRestart(c *v1.Container, pod *v1.PodSpec, code int32) bool {
	return translate.MayRestartAll(pod) || translate.Restarts(pod, cmp.Or(c, &v1.Container{}), code)
}

// mergeEphemeral keeps observed statuses that the desired status lacks.
func mergeEphemeral(observed, wanted []v1.ContainerStatus) []v1.ContainerStatus {
	for i := range wanted {
		s := *wanted[i].DeepCopy()
		truncate(&s)
		if o := named(observed, s.Name); o != nil {
			*o = s
		} else {
			observed = append(observed, s)
		}
	}
	return observed
}

func named(all []v1.ContainerStatus, name string) *v1.ContainerStatus {
	return find.In(all, func(s *v1.ContainerStatus) bool { return s.Name == name })
}

// truncate rounds all times down to whole seconds, the precision of the wire. Finer times would always differ.
func truncate(s *v1.ContainerStatus) {
	for _, state := range []*v1.ContainerState{&s.State, &s.LastTerminationState} {
		if r := state.Running; r != nil {
			r.StartedAt = *seconds(&r.StartedAt)
		}
		if t := state.Terminated; t != nil {
			t.StartedAt, t.FinishedAt = *seconds(&t.StartedAt), *seconds(&t.FinishedAt)
		}
	}
}

// seconds returns the time in whole seconds.
func seconds(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	if t.IsZero() {
		return &metav1.Time{}
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// mergeConditions returns the conditions to write: the desired ones, and other owners' conditions unchanged. The order is the
// API server's. out is the status as merged so far.
func mergeConditions(pod *v1.Pod, out, wanted *v1.PodStatus, generation int64, now time.Time) []v1.PodCondition {
	merged := slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c v1.PodCondition) bool {
		return len(wanted.Conditions) > 0 && resizes(c.Type) && condition(wanted, c.Type) == nil // the resize was cancelled
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
			merged[i].ObservedGeneration = generation // the scheduler owns the rest
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

// resizes reports whether the condition exists only while a resize is pending or in progress. The node agent owns it.
func resizes(t v1.PodConditionType) bool {
	return t == v1.PodResizePending || t == v1.PodResizeInProgress
}

// since returns the time of a condition's last transition: the desired one, or now if settle changed the status.
func since(c v1.PodCondition, wanted *v1.PodStatus, now time.Time) metav1.Time {
	w := condition(wanted, c.Type)
	if w == nil || w.Status != c.Status || w.LastTransitionTime.IsZero() {
		return metav1.NewTime(now.Truncate(time.Second))
	}
	return *seconds(&w.LastTransitionTime)
}

// settle corrects a desired condition with facts that only the API server's object has: the pod's end, and the state of its
// readiness gates (KEP-580).
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
	return find.In(s.Conditions, func(c *v1.PodCondition) bool { return c.Type == t })
}

// ready reports whether the status has the pod as ready.
func ready(s *v1.PodStatus) bool {
	c := condition(s, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
