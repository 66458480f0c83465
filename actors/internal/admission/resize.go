package admission

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Resize decides whether a pod of this node may change its resources; others does not include the pod. An empty reason admits
// the resize. v1.PodReasonDeferred waits for other pods to end, and v1.PodReasonInfeasible means that this node can never
// provide the resources. detail is the kubelet's label for the reason in its metrics. A resource whose request does not grow
// never delays a resize.
func Resize(node *Node, others *Ledger, has, wants *Claim) (reason, message, detail string) {
	switch {
	case translate.IsStatic(wants.Pod):
		return v1.PodReasonInfeasible, "In-place resize of static pods is not supported", "static_pod"
	case !node.PodLevelResize && !equality.Semantic.DeepEqual(wants.Pod.Spec.Resources, has.Pod.Spec.Resources):
		return v1.PodReasonInfeasible, "InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off"
	case node.Swap && swaps(has.Pod, wants.Pod):
		return v1.PodReasonInfeasible, "In-place resize of containers with swap is not supported.", "swap_limitation"
	case node.StaticCPUs && !node.ResizeCPUs && translate.QOSClass(wants.Pod) == v1.PodQOSGuaranteed &&
		resizes(v1.ResourceCPU, has.Pod, wants.Pod):
		return v1.PodReasonInfeasible, `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`,
			"guaranteed_pod_cpu_manager_static_policy"
	case node.StaticMemory && !node.ResizeMemory && translate.QOSClass(wants.Pod) == v1.PodQOSGuaranteed &&
		resizes(v1.ResourceMemory, has.Pod, wants.Pod):
		return v1.PodReasonInfeasible, `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`,
			"guaranteed_pod_memory_manager_static_policy"
	case node.UnboundRequests:
		return "", "", ""
	}
	for _, name := range translate.ComputeResources {
		limit, known := node.Allocatable[name]
		s := shortage{name, wants.requests[name], others.used[name], amount(name, limit)}
		if known && s.requested > s.capacity {
			return v1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d",
				s.name, s.requested, s.capacity), "insufficient_node_allocatable"
		}
		if known && message == "" && s.requested > has.requests[name] && s.requested > s.capacity-s.used {
			reason, message = v1.PodReasonDeferred, s.refusal().Message
		}
	}
	return reason, message, ""
}

// resizes reports whether the request of a container for a resource changes.
func resizes(name v1.ResourceName, has, wants *v1.Pod) bool {
	now := containers(has)
	for i, c := range containers(wants) {
		if was, is := now[i].Resources.Requests[name], c.Resources.Requests[name]; is.Cmp(was) != 0 {
			return true
		}
	}
	return false
}

// containers returns the containers of a pod that can be resized. Their number and order are fixed.
func containers(p *v1.Pod) []v1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// swaps reports whether the resize would change a container's share of swap, which is fixed at its creation.
func swaps(has, wants *v1.Pod) bool {
	now := containers(has)
	for i, c := range containers(wants) {
		restarts := slices.ContainsFunc(now[i].ResizePolicy, func(r v1.ContainerResizePolicy) bool {
			return r.ResourceName == v1.ResourceMemory && r.RestartPolicy == v1.RestartContainer
		})
		if !restarts && c.Resources.Requests.Memory().Cmp(*now[i].Resources.Requests.Memory()) != 0 &&
			(translate.MaySwap(has, &now[i]) || translate.MaySwap(wants, &c)) {
			return true
		}
	}
	return false
}

// Priority is the order in which resizes are looked at that wait, as documented for them: by priority, then by class of quality
// of service, the guaranteed pods first. Negative: x comes before y.
func Priority(x, y *v1.Pod) int {
	rank := map[v1.PodQOSClass]int{v1.PodQOSGuaranteed: 2, v1.PodQOSBurstable: 1}
	return cmp.Or(cmp.Compare(ptr.Deref(y.Spec.Priority, 0), ptr.Deref(x.Spec.Priority, 0)),
		cmp.Compare(rank[translate.QOSClass(y)], rank[translate.QOSClass(x)]))
}
