package main

import (
	"runtime"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction threshold of memory, which pods must not come to.
func allocatable(node *config.Node, facts cri.NodeFacts) v1.ResourceList {
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(facts.MemoryCapacity, resource.BinarySI),
	}
	less := func(name v1.ResourceName, by resource.Quantity) {
		left := out[name]
		if left.Sub(by); left.Sign() < 0 {
			left = resource.Quantity{}
		}
		out[name] = left
	}
	for _, reserved := range []map[string]string{node.Kubelet.SystemReserved, node.Kubelet.KubeReserved} {
		for name := range out {
			if q, err := resource.ParseQuantity(reserved[string(name)]); err == nil { // validated; a missing one is none
				less(name, q)
			}
		}
	}
	if !node.AllocatableIgnoresEviction {
		less(v1.ResourceMemory, threshold(node.Kubelet.EvictionHard["memory.available"], facts.MemoryCapacity))
	}
	return out
}

// threshold is a quantity, or a part of the capacity where it is given as a percentage.
func threshold(text string, capacity int64) resource.Quantity {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		part, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return resource.Quantity{}
		}
		return *resource.NewQuantity(int64(float64(capacity)*part/100), resource.BinarySI)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return q
}
