package client

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func ptr[T any](v T) *T { return &v }

// shape makes containers' statuses in a test readable.
type shape func(*v1.ContainerStatus)

func waits(reason string) shape {
	return func(c *v1.ContainerStatus) { c.State.Waiting = &v1.ContainerStateWaiting{Reason: reason} }
}

func runs(ready bool) shape {
	return func(c *v1.ContainerStatus) {
		c.State.Running, c.Ready, c.Started = &v1.ContainerStateRunning{}, ready, ptr(true)
	}
}

func ended(code int32, reason string) shape {
	return func(c *v1.ContainerStatus) {
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}
	}
}

func killed(signal int32) shape {
	return func(c *v1.ContainerStatus) {
		c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 128 + signal, Signal: signal}
	}
}

func (s shape) again(times int32, last time.Duration) shape {
	return func(c *v1.ContainerStatus) {
		s(c)
		c.RestartCount = times
		c.LastTerminationState.Terminated = &v1.ContainerStateTerminated{FinishedAt: ago(last)}
	}
}

// podOf makes a pod with init containers (those before "|"), sidecars among them (with "+"), and containers.
func podOf(names string, phase v1.PodPhase, shapes ...shape) *api.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	pod.Status = v1.PodStatus{Phase: phase, StartTime: ptr(ago(5 * time.Minute)), PodIP: "10.0.0.7"}
	inits, containers, some := strings.Cut(names, "|")
	if !some {
		inits, containers = "", names
	}
	for _, name := range strings.Fields(inits) {
		name, sidecar := strings.CutPrefix(name, "+")
		c := v1.Container{Name: name}
		if sidecar {
			c.RestartPolicy = ptr(v1.ContainerRestartPolicyAlways)
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

func with(p *api.Pod, f func(*api.Pod)) *api.Pod {
	f(p)
	return p
}

func is(kind v1.PodConditionType) func(*api.Pod) {
	return func(p *api.Pod) {
		p.Pod.Status.Conditions = append(p.Pod.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue})
	}
}
