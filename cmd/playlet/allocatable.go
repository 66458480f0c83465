package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// allocatable is what pods can have of the machine: what it has, less what the configuration reserves, and less the hard
// eviction threshold of memory, which pods must not come to.
func allocatable(node *config.Node, facts cri.NodeFacts, cpus int) v1.ResourceList {
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
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

// notEvicted are the signals whose hard thresholds were set, and at which nothing is evicted yet.
func notEvicted(node *config.Node) []string {
	var out []string
	plain := config.DefaultEvictionHard()
	for _, signal := range slices.Sorted(maps.Keys(node.Kubelet.EvictionHard)) {
		if text := node.Kubelet.EvictionHard[signal]; !turnedOff(text) && text != plain[signal] {
			out = append(out, signal)
		}
	}
	return out
}

// turnedOff says whether a threshold is none: 0% and 100% turn a signal off, for the kubelet too.
func turnedOff(text string) bool { return text == "0%" || text == "100%" }

// threshold is a quantity, or a part of the capacity where it is given as a percentage.
func threshold(text string, capacity int64) resource.Quantity {
	if turnedOff(text) {
		return resource.Quantity{}
	}
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
