package fake

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// Noon is the time of day in tests.
var Noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// Ago is a time before Noon.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Noon.Add(-d)) }

// Shape makes containers' statuses in a test readable.
type Shape func(*v1.ContainerStatus)

// Waits is a container that waits.
func Waits(reason string) Shape {
	return func(c *v1.ContainerStatus) { c.State.Waiting = &v1.ContainerStateWaiting{Reason: reason} }
}

// Runs is a container that runs.
func Runs(ready bool) Shape {
	return func(c *v1.ContainerStatus) {
		c.State.Running, c.Ready, c.Started = &v1.ContainerStateRunning{}, ready, new(true)
	}
}

// Ended is a container that has ended with an exit code.
func Ended(code int32, reason string) Shape {
	return func(c *v1.ContainerStatus) {
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}
	}
}

// Killed is a container that was ended by a signal, without a reason.
func Killed(signal int32) Shape {
	return func(c *v1.ContainerStatus) {
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 128 + signal, Signal: signal}
	}
}

// Again is the same shape with that number of restarts, and a last run that ended that long before Noon.
func (s Shape) Again(times int32, last time.Duration) Shape {
	return func(c *v1.ContainerStatus) {
		s(c)
		c.RestartCount = times
		c.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: Ago(last)}
	}
}

// Pod makes a pod with init containers (those before "|"), sidecars among them (with "+"), and containers.
func Pod(names string, phase v1.PodPhase, shapes ...Shape) *api.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	pod.Status = v1.PodStatus{Phase: phase, StartTime: new(Ago(5 * time.Minute)), PodIP: "10.0.0.7"}
	inits, containers, some := strings.Cut(names, "|")
	if !some {
		inits, containers = "", names
	}
	for _, name := range strings.Fields(inits) {
		name, sidecar := strings.CutPrefix(name, "+")
		c := v1.Container{Name: name}
		if sidecar {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, v1.ContainerStatus{Name: name})
	}
	for _, name := range strings.Fields(containers) {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: name})
	}
	n := len(pod.Status.InitContainerStatuses)
	for i, s := range shapes {
		if i < n {
			s(&pod.Status.InitContainerStatuses[i])
		} else {
			s(&pod.Status.ContainerStatuses[i-n])
		}
	}
	return &api.Pod{Pod: pod}
}

// With changes a pod, and gives it.
func With(p *api.Pod, f func(*api.Pod)) *api.Pod {
	f(p)
	return p
}

// Is has a condition be true of a pod.
func Is(kind v1.PodConditionType) func(*api.Pod) {
	return func(p *api.Pod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
}
