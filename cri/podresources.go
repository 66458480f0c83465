package cri

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// containerRequests is what the pod's containers request together at most at one
// time: all containers and sidecars, or an init container beside the sidecars
// started before it, whichever is more (KEP-753).
func containerRequests(pod *v1.Pod) v1.ResourceList {
	return aggregate(pod, func(c *v1.Container) v1.ResourceList { return c.Resources.Requests })
}

func containerLimits(pod *v1.Pod) v1.ResourceList {
	return aggregate(pod, func(c *v1.Container) v1.ResourceList { return c.Resources.Limits })
}

func aggregate(pod *v1.Pod, of func(*v1.Container) v1.ResourceList) v1.ResourceList {
	running := v1.ResourceList{}
	for i := range pod.Spec.Containers {
		addTo(running, of(&pod.Spec.Containers[i]))
	}
	sidecars, starting := v1.ResourceList{}, v1.ResourceList{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		now := v1.ResourceList{}
		addTo(now, sidecars)
		addTo(now, of(c))
		raiseTo(starting, now)
		if RestartsAlways(c) {
			addTo(sidecars, of(c))
			addTo(running, of(c))
		}
	}
	raiseTo(running, starting)
	return running
}

func addTo(sum, list v1.ResourceList) {
	for name, quantity := range list {
		total := quantity.DeepCopy()
		total.Add(sum[name])
		sum[name] = total
	}
}

func raiseTo(most, list v1.ResourceList) {
	for name, quantity := range list {
		if was, ok := most[name]; !ok || quantity.Cmp(was) > 0 {
			most[name] = quantity.DeepCopy()
		}
	}
}

// podRequests and podLimits are the containers' with the pod's own above them,
// without overhead.
func podRequests(pod *v1.Pod) v1.ResourceList {
	list := containerRequests(pod)
	if hasPodRequests(pod) {
		override(list, pod.Spec.Resources.Requests)
	}
	return list
}

func podLimits(pod *v1.Pod) v1.ResourceList {
	list := containerLimits(pod)
	if hasPodLimits(pod) {
		override(list, pod.Spec.Resources.Limits)
	}
	return list
}

func override(list, with v1.ResourceList) {
	for name, quantity := range with {
		if isPodLevelResource(name) {
			list[name] = quantity
		}
	}
}

// The resources a pod can claim as a whole (KEP-2837).
func isPodLevelResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || isHugePages(name)
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func hasPodRequests(pod *v1.Pod) bool {
	return pod.Spec.Resources != nil && anyPodLevel(pod.Spec.Resources.Requests)
}

func hasPodLimits(pod *v1.Pod) bool {
	return pod.Spec.Resources != nil && anyPodLevel(pod.Spec.Resources.Limits)
}

func anyPodLevel(list v1.ResourceList) bool {
	for name := range list {
		if isPodLevelResource(name) {
			return true
		}
	}
	return false
}
