package podspec

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// everyContainer yields the init, regular and ephemeral containers of spec, with their paths below path if it is
// given. Ephemeral containers come as the v1.Container that has the same memory.
func everyContainer(spec *v1.PodSpec, path ...*field.Path) iter.Seq2[*v1.Container, *field.Path] {
	at := func(list string, i int) *field.Path {
		if len(path) == 0 {
			return nil
		}
		return path[0].Child(list).Index(i)
	}
	return func(yield func(*v1.Container, *field.Path) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i], at("initContainers", i)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], at("containers", i)) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			common := (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(common, at("ephemeralContainers", i)) {
				return
			}
		}
	}
}
