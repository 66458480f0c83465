package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/cri/translate"
)

// merge gives the status that the pod is to have: what the agent owns is as wanted, all else as the API server has it. The
// result shares nothing that is changed with its arguments.
func merge(pod *v1.Pod, wanted *v1.PodStatus, now time.Time) *v1.PodStatus {
	out := pod.Status.DeepCopy()
	generation := max(wanted.ObservedGeneration, out.ObservedGeneration)
	if isMirror(pod) {
		generation = 0 // it tells of its static pod, which has none, and not of its own (KEP-5067)
	}
	out.ObservedGeneration = generation
	mergePhase(out, wanted)
	mergeAddresses(out, wanted)
	if out.StartTime == nil {
		out.StartTime = seconds(wanted.StartTime)
	}
	if out.QOSClass == "" { // the API server sets it and lets nobody change it
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

// mergePhase never takes back that a pod has ended: others have acted on it.
func mergePhase(out, wanted *v1.PodStatus) {
	if wanted.Phase == "" || (finalstatus.Final(out.Phase) && out.Phase != wanted.Phase) {
		return
	}
	out.Phase, out.Reason, out.Message = wanted.Phase, wanted.Reason, wanted.Message
}

// mergeAddresses keeps those that are known when there are none any more: others still ask where the pod was.
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
		return observed // nothing is known of them here; that they were there is
	}
	out := make([]v1.ContainerStatus, 0, len(wanted))
	for i := range wanted {
		s := *wanted[i].DeepCopy()
		truncate(&s)
		if o := named(observed, s.Name); o != nil {
			mergeContainer(&s, o, spec(specs, s.Name), pod)
		}
		out = append(out, s)
	}
	return out
}

// mergeContainer takes over from the observed status what must not be lost.
func mergeContainer(s, observed *v1.ContainerStatus, spec *v1.Container, pod *v1.PodSpec) {
	s.RestartCount = max(s.RestartCount, observed.RestartCount) // containers that were collected are not counted any more
	if s.AllocatedResourcesStatus == nil {
		s.AllocatedResourcesStatus = observed.AllocatedResourcesStatus
	}
	if s.LastTerminationState == (v1.ContainerState{}) && s.RestartCount > 0 {
		s.LastTerminationState = observed.LastTerminationState
	}
	// The API server refuses the whole status where a container that has ended for good lives again.
	if ended := observed.State.Terminated; ended != nil && s.State.Terminated == nil && !mayRestart(spec, pod, ended.ExitCode) {
		s.State, s.Ready, s.Started = observed.State, observed.Ready, observed.Started
	}
}

// mayRestart is the API server's rule for containers that ended with this code. Where one of them may have all restarted, it lets
// any live again (KEP-5532).
func mayRestart(c *v1.Container, pod *v1.PodSpec, code int32) bool {
	if c == nil {
		c = &v1.Container{}
	}
	return translate.MayRestartAll(pod) || translate.Restarts(pod, c, code)
}

// mergeEphemeral keeps those of which nothing is known here.
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
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func spec(all []v1.Container, name string) *v1.Container {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// truncate brings all times to whole seconds, which is what the wire has: what is finer would always differ.
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

// seconds is the time in whole seconds.
func seconds(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	if t.IsZero() {
		return &metav1.Time{}
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
