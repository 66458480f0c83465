package translate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"
)

const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
	// Burstable containers score above a guaranteed one that uses all memory, and below best effort.
	lowestBurstableOOMScore  = 1000 + guaranteedOOMScore
	highestBurstableOOMScore = bestEffortOOMScore - 1

	annotationConfigSource = "kubernetes.io/config.source"
	annotationConfigMirror = "kubernetes.io/config.mirror"

	// SystemCriticalPriority is the lowest priority of critical pods, that of the class system-cluster-critical.
	SystemCriticalPriority = 2_000_000_000

	systemNodeCritical    = "system-node-critical"
	systemClusterCritical = "system-cluster-critical"
)

// ComputeResources determine a pod's class, and can be resized (KEP-1287, KEP-5419). The list must not be changed.
var ComputeResources = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// QOSClass returns the pod's class: from its status if set, else from its requests and limits of cpu and memory, the pod's own if
// it has any (KEP-2837). Guaranteed: every container limits both and requests the same. BestEffort: none of either. Burstable:
// the rest.
func QOSClass(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var sets []v1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil {
		sets = append(sets, *r)
	} else {
		for c := range containersOf(&pod.Spec) {
			sets = append(sets, c.Resources)
		}
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	allLimited := true
	for _, set := range sets {
		addComputeResources(requests, set.Requests)
		limited := addComputeResources(limits, set.Limits)
		// For a pod with requests alone, the comparison below decides.
		if limited < 2 && (pod.Spec.Resources == nil || len(set.Limits) > 0) {
			allLimited = false
		}
	}
	switch {
	case len(requests) == 0 && len(limits) == 0:
		return v1.PodQOSBestEffort
	case allLimited && apiequality.Semantic.DeepEqual(requests, limits):
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// addComputeResources adds the quantities above zero and returns how many of cpu and memory it added.
func addComputeResources(sum, list v1.ResourceList) int {
	count := 0
	for _, name := range ComputeResources {
		quantity, ok := list[name]
		if !ok || quantity.Sign() != 1 {
			continue
		}
		count++
		total := quantity.DeepCopy()
		total.Add(sum[name])
		sum[name] = total
	}
	return count
}

// oomScoreAdj returns the adjustment of the kernel's badness (-1000 to 1000) for the container's processes. A burstable container
// gets 1000 less the per mille of the node's memory it requests, so that a container above its request is killed first. A sidecar
// never scores worse than the containers it serves.
func oomScoreAdj(pod *v1.Pod, container *v1.Container, capacity int64) int64 {
	if IsCritical(pod) && pod.Spec.PriorityClassName == systemNodeCritical {
		return guaranteedOOMScore
	}
	switch QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case v1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	if capacity <= 0 {
		return highestBurstableOOMScore
	}
	share := unclaimedMemoryPerContainer(pod)
	score := 1000 - 1000*(memoryRequest(container)+share)/capacity
	if isSidecar(pod, container) {
		least := memoryRequest(&pod.Spec.Containers[0])
		for i := range pod.Spec.Containers[1:] {
			least = min(least, memoryRequest(&pod.Spec.Containers[i+1]))
		}
		score = min(score, 1000-1000*(least+share)/capacity)
	}
	if score == bestEffortOOMScore {
		return highestBurstableOOMScore
	}
	return max(score, lowestBurstableOOMScore)
}

// unclaimedMemoryPerContainer returns each container's share of the memory that the pod requests and its containers do not
// (KEP-2837).
func unclaimedMemoryPerContainer(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	claimed := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceMemory]
	unclaimed := pod.Spec.Resources.Requests.Memory().Value() - claimed.Value()
	return unclaimed / int64(len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
}

func memoryRequest(container *v1.Container) int64 {
	return container.Resources.Requests.Memory().Value()
}

func isSidecar(pod *v1.Pod, container *v1.Container) bool {
	if !RestartsAlways(container) || len(pod.Spec.Containers) == 0 {
		return false
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == container.Name })
}

// IsStatic reports whether a pod comes from a source other than the API server.
func IsStatic(pod *v1.Pod) bool {
	source, ok := pod.Annotations[annotationConfigSource]
	return ok && source != "api"
}

// IsCritical reports whether a pod is a static or mirror pod, or has a system priority.
func IsCritical(pod *v1.Pod) bool {
	if IsStatic(pod) {
		return true
	}
	if _, ok := pod.Annotations[annotationConfigMirror]; ok {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= SystemCriticalPriority
}

// Priority returns the pod's priority, 0 without one. A static pod may only name its class, which no API server has resolved; of
// the classes, those that every cluster has are known.
func Priority(pod *v1.Pod) int64 {
	switch p, class := pod.Spec.Priority, pod.Spec.PriorityClassName; {
	case p != nil:
		return int64(*p)
	case class == systemNodeCritical:
		return SystemCriticalPriority + 1000
	case class == systemClusterCritical:
		return SystemCriticalPriority
	}
	return 0
}

// HasCriticalPriority reports whether a pod has a system priority.
func HasCriticalPriority(pod *v1.Pod) bool { return Priority(pod) >= SystemCriticalPriority }
