package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/config"
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
		{"reservations", map[string]string{"memory": "100Mi"}, map[string]string{"memory": "200Mi", "pid": "5"}, "", false,
			"700Mi"},
		{"a threshold", nil, nil, "100Mi", false, "900Mi"},
		{"a threshold in percent", nil, nil, "10%", false, "943718399"}, // in 32 bits, as the kubelet reckons,
		{"a threshold left out", nil, nil, "10%", true, "1000Mi"},
		{"a threshold that is none", nil, nil, "100%", false, "1000Mi"}, // it turns the signal off, as 0% does
		{"more than there is", map[string]string{"memory": "2000Mi"}, nil, "", false, "0"},
	} {
		node := &config.Node{AllocatableIgnoresEviction: c.ignoreEviction, Kubelet: &config.KubeletConfiguration{
			SystemReserved: c.system, KubeReserved: c.kube, EvictionHard: map[string]string{"memory.available": c.eviction},
		}}
		got := allocatable(node, registration.Machine{CPUs: 7, Memory: capacity})
		if got.Memory().Cmp(resource.MustParse(c.memory)) != 0 {
			t.Errorf("%s: memory %s, want %s", c.name, got.Memory(), c.memory)
		}
		if cpu := got[v1.ResourceCPU]; cpu.Value() != 7 {
			t.Errorf("%s: cpu %s", c.name, cpu.String())
		}
	}
}
