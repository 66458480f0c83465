package manifest

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Same says whether two pods that Load made say the same, but for the time at which each was seen first.
func Same(a, b *v1.Pod) bool {
	x, y := *a, *b
	x.Annotations, y.Annotations = maps.Clone(a.Annotations), maps.Clone(b.Annotations)
	delete(x.Annotations, FirstSeenAnnotation)
	delete(y.Annotations, FirstSeenAnnotation)
	return equality.Semantic.DeepEqual(&x, &y)
}
