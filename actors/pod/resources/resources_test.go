package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWidened(t *testing.T) {
	of := func(request, limit string) (r v1.ResourceRequirements) {
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
		if limit != "" {
			r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)}
		}
		return r
	}
	for _, c := range [][3]v1.ResourceRequirements{
		{of("1", "2"), of("2", "1"), of("2", "2")},
		{of("1", "2"), of("1", ""), of("1", "")},
		{of("3", ""), of("1", "9"), of("3", "")},
	} {
		if got := widened(c[0], c[1]); !equality.Semantic.DeepEqual(got, c[2]) {
			t.Errorf("%v and %v are %v, want %v", c[0], c[1], got, c[2])
		}
	}
	if got := widened(v1.ResourceRequirements{}, of("1", "1")); got.Requests.Cpu().String() != "1" || len(got.Limits) > 0 {
		t.Errorf("nothing and something are %v", got)
	}
}
