package kinds

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPageSize(t *testing.T) {
	for _, c := range []struct {
		medium   v1.StorageMedium
		requests []string
		want     int64
	}{
		{"HugePages", []string{"2Mi"}, 2 << 20},
		{"HugePages", []string{"2Mi", "1Gi"}, 0},
		{"HugePages", nil, 0},
		{"HugePages-1Gi", []string{"2Mi", "1Gi"}, 1 << 30},
		{"HugePages-1Gi", []string{"2Mi"}, 0},
		{"HugePagesX", []string{"2Mi"}, 0},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 1)}}
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{}
		for _, r := range c.requests {
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceName(v1.ResourceHugePagesPrefix+r)] = resource.MustParse(r)
		}
		got, err := pageSize(pod, c.medium)
		if got != c.want || (err == nil) != (c.want > 0) || (err != nil && !IsPermanent(err)) {
			t.Errorf("%s of %v: %d, %v", c.medium, c.requests, got, err)
		}
	}
}
