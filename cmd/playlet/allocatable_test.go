package main

import (
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

func TestAllocatable(t *testing.T) {
	const capacity = 1000 << 20
	for _, c := range []struct {
		name           string
		system, kube   map[string]string
		eviction       string
		ignoreEviction bool
		memory         string
	}{
		{"all of it", nil, nil, "", false, "1000Mi"},
		{"reservations", map[string]string{"memory": "100Mi"}, map[string]string{"memory": "200Mi", "pid": "5"}, "", false, "700Mi"},
		{"a threshold", nil, nil, "100Mi", false, "900Mi"},
		{"a threshold in percent", nil, nil, "10%", false, "900Mi"},
		{"a threshold left out", nil, nil, "10%", true, "1000Mi"},
		{"more than there is", map[string]string{"memory": "2000Mi"}, nil, "", false, "0"},
	} {
		node := &config.Node{AllocatableIgnoresEviction: c.ignoreEviction, Kubelet: &config.KubeletConfiguration{
			SystemReserved: c.system, KubeReserved: c.kube, EvictionHard: map[string]string{"memory.available": c.eviction},
		}}
		got := allocatable(node, cri.NodeFacts{MemoryCapacity: capacity})
		if got.Memory().Cmp(resource.MustParse(c.memory)) != 0 {
			t.Errorf("%s: memory %s, want %s", c.name, got.Memory(), c.memory)
		}
		if cpu := got[v1.ResourceCPU]; cpu.Value() != int64(runtime.NumCPU()) {
			t.Errorf("%s: cpu %s", c.name, cpu.String())
		}
	}
}
