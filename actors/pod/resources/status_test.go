package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a pod are the sum of its containers', even if one has none, as a kubelet reports them.
func TestOfCgroup_ContainerWithoutLimit(t *testing.T) {
	limited := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"), v1.ResourceCPU: resource.MustParse("1")}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: limited}, {Name: "b"}}}}
	got := OfCgroup(pod).Limits
	if got.Memory().String() != "64Mi" || got.Cpu().String() != "1" {
		t.Errorf("got limits %v, want those of the container that has some", got)
	}
}
