package translate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The resources of the pod as a whole exclude its overhead, which is sent separately, and only have limits that all its
// containers have.
func TestSandboxUpdate_HasPodResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		if memory != "" {
			out[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	pod := &v1.Pod{}
	pod.Spec.Overhead = list("100m", "1Mi")
	pod.Spec.Containers = []v1.Container{
		{Resources: v1.ResourceRequirements{Requests: list("500m", "1Mi"), Limits: list("1", "2Mi")}},
		{Resources: v1.ResourceRequirements{Requests: list("500m", "1Mi"), Limits: list("1", "")}},
	}
	node := NodeFacts{CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond}
	r, o := UpdatedSandboxResources(pod, node)
	if r.GetCpuShares() != 1024 || r.GetCpuQuota() != 200000 || r.GetMemoryLimitInBytes() != 0 ||
		o.GetCpuShares() != 102 || o.GetCpuQuota() != 10000 || o.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("told %+v, %+v", r, o)
	}
	pod.Spec.Containers[1].Resources.Limits[v1.ResourceMemory] = resource.MustParse("4Mi")
	delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
	if r, _ := UpdatedSandboxResources(pod, node); r.GetMemoryLimitInBytes() != 6<<20 || r.GetCpuQuota() != 0 {
		t.Errorf("told %+v", r)
	}
}
