package podspec

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Allocation holds the resources allocated to a pod and its containers (KEP-1287, KEP-5419). It is immutable.
type Allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"` // by name, including init containers
}

// AllocationOf returns the pod's requested resources.
func AllocationOf(p *v1.Pod) *Allocation {
	out := &Allocation{Containers: map[string]v1.ResourceRequirements{}, Pod: p.Spec.Resources}
	for c := range Sized(p) {
		out.Containers[c.Name] = c.Resources
	}
	return out
}

// Sized iterates over the containers of a pod that have resources.
func Sized(p *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// In returns the pod with these resources. It returns the pod itself if they are equal, or if a is nil.
func (a *Allocation) In(p *v1.Pod) *v1.Pod {
	if a == nil || a.IsOf(p) {
		return p
	}
	out := p.DeepCopy()
	out.Spec.Resources = a.Pod
	out.Status.QOSClass = translate.QOSClass(p) // no resize changes it
	for c := range Sized(out) {
		if r, ok := a.Containers[c.Name]; ok {
			c.Resources = r
		}
	}
	return out
}

// IsOf reports whether the pod requests exactly these resources.
func (a *Allocation) IsOf(p *v1.Pod) bool {
	for c := range Sized(p) {
		if r, ok := a.Containers[c.Name]; ok && !equality.Semantic.DeepEqual(r, c.Resources) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(a.Pod, p.Spec.Resources)
}
