package facts

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Values that the runtime applied as requested are reported as given, despite the rounding of the runtime's units; all others are
// reported as the runtime has them.
func TestResources(t *testing.T) {
	of := func(request, limit, memory string) (r v1.ResourceRequirements) {
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
		r.Limits = v1.ResourceList{}
		if limit != "" {
			r.Limits[v1.ResourceCPU] = resource.MustParse(limit)
		}
		if memory != "" {
			r.Limits[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return r
	}
	asked := &runtimeapi.LinuxContainerResources{CpuShares: 3, CpuQuota: 1000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20}
	for name, c := range map[string]struct {
		reported messages.ContainerResources
		want     v1.ResourceRequirements
	}{
		"as asked for": {messages.ContainerResources{CPUShares: 3, CPUQuota: 1000, CPUPeriod: 100000, MemoryLimit: 1 << 20},
			of("3m", "5m", "1Mi")},
		"another": {messages.ContainerResources{CPUShares: 1024, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: 2 << 20},
			of("1", "500m", "2Mi")},
		"no limits":      {messages.ContainerResources{CPUShares: 3, CPUQuota: -1, CPUPeriod: 100000}, of("3m", "", "")},
		"nothing at all": {messages.ContainerResources{}, of("3m", "", "")},
	} {
		if got := Resources(of("3m", "5m", "1Mi"), asked, c.reported); !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := Resources(v1.ResourceRequirements{}, &runtimeapi.LinuxContainerResources{CpuShares: 2},
		messages.ContainerResources{CPUShares: 2, MemoryLimit: 1 << 20}); got.Limits.Memory().String() != "1Mi" || got.Requests != nil {
		t.Errorf("of one that asked for nothing: %+v", got)
	}
}
