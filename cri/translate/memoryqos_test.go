package translate

import (
	"maps"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// KEP-2570 sets memory.high by the throttling factor, rounded down to pages. With TieredReservation it also protects the
// requested memory.
func TestMemoryQoS(t *testing.T) {
	const mi = 1 << 20
	container := func(request, limit string) *v1.Container {
		c := &v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}}
		if request != "" {
			c.Resources.Requests[v1.ResourceMemory] = resource.MustParse(request)
		}
		if limit != "" {
			c.Resources.Limits[v1.ResourceMemory] = resource.MustParse(limit)
		}
		return c
	}
	node := NodeFacts{CgroupV2: true, SingleProcessOOMKill: true, MemoryQoS: true, ThrottlingFactor: 0.9, PodMemory: 1000 * mi}
	for name, c := range map[string]struct {
		request, limit string
		class          v1.PodQOSClass
		kept           map[string]int // with TieredReservation, in MiB
		high           int            // in bytes; 0 means no throttling
	}{
		"burstable":              {"100Mi", "200Mi", v1.PodQOSBurstable, map[string]int{"memory.low": 100}, 190 * mi},
		"up to what pods have":   {"100Mi", "", v1.PodQOSBurstable, map[string]int{"memory.low": 100}, 910 * mi},
		"rounded to pages":       {"1Mi", "1054722", v1.PodQOSBurstable, map[string]int{"memory.low": 1}, mi + 4096},
		"not a page":             {"1Mi", "1048577", v1.PodQOSBurstable, map[string]int{"memory.low": 1}, 0},
		"guaranteed":             {"100Mi", "100Mi", v1.PodQOSGuaranteed, map[string]int{"memory.min": 100}, 0},
		"best effort":            {"", "", v1.PodQOSBestEffort, map[string]int{"memory.min": 0, "memory.low": 0}, 0},
		"more than pods have":    {"2000Mi", "", v1.PodQOSBurstable, map[string]int{"memory.low": 2000}, 0},
		"a limit and no request": {"", "100Mi", v1.PodQOSBurstable, map[string]int{"memory.min": 0, "memory.low": 0}, 90 * mi},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{QOSClass: c.class}}
		one := container(c.request, c.limit)
		pod.Spec.Containers = []v1.Container{*one}
		for _, protect := range []bool{true, false} {
			want := map[string]string{"memory.min": "0", "memory.low": "0"}
			if protect {
				want = map[string]string{}
				for file, kept := range c.kept {
					want[file] = strconv.Itoa(kept * mi)
				}
			}
			if c.high > 0 {
				want["memory.high"] = strconv.Itoa(c.high)
			}
			node := node
			node.ProtectMemory = protect
			if got := NewContainerResources(pod, one, node).Unified; !maps.Equal(got, want) {
				t.Errorf("%s, protected %t: %v, want %v", name, protect, got, want)
			}
		}
		off := node
		off.MemoryQoS, off.ProtectMemory = false, true
		if got := NewContainerResources(pod, one, off).Unified; len(got) > 0 {
			t.Errorf("%s, off: %v", name, got)
		}
	}
}
