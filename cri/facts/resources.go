package facts

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Resources are those that a running container has: what it was given, and where the runtime tells of another value than it was
// asked for, that value. So nothing is rounded that is as it was asked for. The result is the caller's.
func Resources(given v1.ResourceRequirements, asked *runtimeapi.LinuxContainerResources,
	told messages.ContainerResources) v1.ResourceRequirements {
	out := *given.DeepCopy()
	set := func(list *v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = *q
	}
	if told.CPUShares > 0 && told.CPUShares != asked.GetCpuShares() {
		set(&out.Requests, v1.ResourceCPU, resource.NewMilliQuantity(told.CPUShares*1000/1024, resource.DecimalSI))
	}
	switch same := told.CPUQuota == asked.GetCpuQuota() && told.CPUPeriod == asked.GetCpuPeriod(); {
	case same:
	case told.CPUQuota > 0 && told.CPUPeriod > 0:
		set(&out.Limits, v1.ResourceCPU, resource.NewMilliQuantity(told.CPUQuota*1000/told.CPUPeriod, resource.DecimalSI))
	case asked.GetCpuQuota() > 0:
		delete(out.Limits, v1.ResourceCPU)
	}
	switch {
	case told.MemoryLimit == asked.GetMemoryLimitInBytes():
	case told.MemoryLimit > 0:
		set(&out.Limits, v1.ResourceMemory, resource.NewQuantity(told.MemoryLimit, resource.BinarySI))
	case asked.GetMemoryLimitInBytes() > 0:
		delete(out.Limits, v1.ResourceMemory)
	}
	return out
}
