package admission

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func sized(cpu, memory string) *v1.Pod {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}}}}
}

// bounded returns a Guaranteed pod.
func bounded(cpu, memory string) *v1.Pod {
	p := sized(cpu, memory)
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
	return p
}

func restarting(p *v1.Pod) *v1.Pod {
	p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	return p
}

func TestResize(t *testing.T) {
	node := &Node{PodLevelResize: true, Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi"),
	}}
	deferred, infeasible := v1.PodReasonDeferred, v1.PodReasonInfeasible
	for name, c := range map[string]struct {
		has, wants, other *v1.Pod
		change            func(wants *v1.Pod, node *Node)
		reason, message   string
	}{
		"it fits": {has: sized("1", "1Gi"), wants: sized("2", "2Gi"), other: sized("2", "2Gi")},
		"others have it": {has: sized("1", "1Gi"), wants: sized("3", "1Gi"), other: sized("2", "1Gi"),
			reason: deferred, message: "cpu, requested: 3000, used: 2000, capacity: 4000"},
		"others have its memory": {has: sized("1", "1Gi"), wants: sized("1", "3Gi"), other: sized("1", "2Gi"),
			reason: deferred, message: "memory"},
		"the node has not": {has: sized("1", "1Gi"), wants: sized("5", "1Gi"), other: sized("1", "1Gi"),
			reason: infeasible, message: "cpu, requested: 5000, capacity: 4000"},
		"one for now, one never": {has: sized("1", "1Gi"), wants: sized("3", "9Gi"), other: sized("2", "1Gi"),
			reason: infeasible, message: "memory"},
		"less, on a node that is full": {has: sized("3", "1Gi"), wants: sized("2", "1Gi"), other: sized("3", "1Gi")},
		"all or nothing": {has: sized("3", "1Gi"), wants: sized("2", "4Gi"), other: sized("1", "1Gi"),
			reason: deferred, message: "memory"},
		"a static pod": {has: sized("1", "1Gi"), wants: sized("2", "1Gi"), other: sized("1", "1Gi"),
			change: func(p *v1.Pod, _ *Node) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} },

			reason: infeasible, message: "static"},
		"the pod's own": {has: sized("1", "1Gi"), wants: sized("1", "1Gi"), other: sized("1", "1Gi"),
			change: func(p *v1.Pod, _ *Node) {

				p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}
			},

			reason: deferred, message: "cpu, requested: 4000, used: 1000, capacity: 4000"},
		"the pod's own, with the gate off": {has: sized("1", "1Gi"), wants: sized("1", "1Gi"), other: sized("1", "1Gi"),
			change: func(p *v1.Pod, n *Node) {
				n.PodLevelResize = false
				p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}
			}, reason: infeasible, message: "is disabled"},
		"memory of a container with swap, which is restarted for it": {has: restarting(sized("1", "1Gi")), wants: sized("1", "2Gi"),
			other: sized("1", "1Gi"), change: func(_ *v1.Pod, n *Node) { n.Swap = true }},
		"memory of a best-effort container": {has: sized("0", "0"), wants: sized("0", "0"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.Swap = true }},
		"memory of a container with swap": {has: sized("1", "1Gi"), wants: sized("1", "2Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.Swap = true }, reason: infeasible, message: "with swap"},
		"CPU of a container with swap": {has: sized("1", "1Gi"), wants: sized("2", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.Swap = true }},
		"CPU of a Guaranteed pod beside the static policy": {has: bounded("1", "1Gi"), wants: bounded("2", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.StaticCPUs = true }, reason: infeasible, message: `CPU Manager policy "static"`},
		"the same, with the gate": {has: bounded("1", "1Gi"), wants: bounded("2", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.StaticCPUs, n.ResizeCPUs = true, true }},
		"memory of a Guaranteed pod beside the static policy": {has: bounded("1", "1Gi"), wants: bounded("1", "2Gi"),
			other: sized("1", "1Gi"), change: func(_ *v1.Pod, n *Node) { n.StaticCPUs = true }},
		"CPU of a burstable pod beside the static policy": {has: sized("1", "1Gi"), wants: sized("2", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.StaticCPUs = true }},
		"a node of which nothing is known": {has: sized("1", "1Gi"), wants: sized("9", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.Allocatable = nil }},
		"a standalone node": {has: sized("1", "1Gi"), wants: sized("9", "1Gi"), other: sized("1", "1Gi"),
			change: func(_ *v1.Pod, n *Node) { n.UnboundRequests = true }},
	} {
		t.Run(name, func(t *testing.T) {
			n := *node
			if c.change != nil {
				c.change(c.wants, &n)
			}
			reason, message, detail := Resize(&n, NewLedger(NewClaim(c.other)), NewClaim(c.has), NewClaim(c.wants))
			if reason != c.reason || !strings.Contains(message, c.message) || (reason == "") != (message == "") ||
				(reason == infeasible) != (detail != "") {
				t.Errorf("%s (%s): %s", reason, detail, message)
			}
		})
	}
}

func TestPriority(t *testing.T) {
	of := func(priority int32, class v1.PodQOSClass) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Priority: &priority}, Status: v1.PodStatus{QOSClass: class}}
	}
	inOrder := []*v1.Pod{of(9, v1.PodQOSBestEffort), of(1, v1.PodQOSGuaranteed), of(1, v1.PodQOSBurstable),
		of(0, v1.PodQOSGuaranteed)}
	for i, x := range inOrder {
		for j, y := range inOrder {
			if got := Priority(x, y); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%d and %d: %d", i, j, got)
			}
		}
	}
}
