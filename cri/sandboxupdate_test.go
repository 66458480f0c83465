package cri

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What is told of a pod as a whole is without its overhead, which is told beside it, and limited in what all its containers are.
// A runtime that does not know the call is none that fails.
func TestARuntimeIsToldOfThePodAsAWhole(t *testing.T) {
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
	var told *runtimeapi.UpdatePodSandboxResourcesRequest
	var answer error
	c := fakeClient(t, &fakeRuntime{updateSandbox: func(r *runtimeapi.UpdatePodSandboxResourcesRequest) error {
		told = r
		return answer
	}}, Options{})
	for _, e := range []struct {
		answer error
		fails  bool
	}{
		{nil, false}, {status.Error(codes.Unimplemented, "unknown method"), false},
		{status.Error(codes.Unknown, "not implemented yet"), false},
		{status.Error(codes.Unknown, "a plugin does not want it"), true}, {status.Error(codes.Unavailable, "not implemented"), true},
	} {
		answer = e.answer
		if err := c.UpdatePodSandboxResources(t.Context(), "s", pod, node); (err != nil) != e.fails {
			t.Errorf("answered %v: %v", e.answer, err)
		}
	}
	r, o := told.GetResources(), told.GetOverhead()
	if told.GetPodSandboxId() != "s" || r.GetCpuShares() != 1024 || r.GetCpuQuota() != 200000 || r.GetMemoryLimitInBytes() != 0 ||
		o.GetCpuShares() != 102 || o.GetCpuQuota() != 10000 || o.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("told %+v", told)
	}
	pod.Spec.Containers[1].Resources.Limits[v1.ResourceMemory] = resource.MustParse("4Mi")
	delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
	if r, _ := updatedSandboxResources(pod, node); r.GetMemoryLimitInBytes() != 6<<20 || r.GetCpuQuota() != 0 {
		t.Errorf("told %+v", r)
	}
}
