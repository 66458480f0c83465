package volumes

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// sameWish says whether two pods want the same volumes with the same in them. A static pod can keep its UID and change.
func sameWish(a, b *v1.Pod) bool {
	return a == b || equality.Semantic.DeepEqual(used(a), used(b)) && equality.Semantic.DeepEqual(fsGroupOf(a), fsGroupOf(b)) &&
		(!tellsOfPod(a) || sameTold(a, b))
}

// sameTold says whether the downward API says the same of two pods.
func sameTold(a, b *v1.Pod) bool {
	same := equality.Semantic.DeepEqual
	if !same(a.Labels, b.Labels) || !same(a.Annotations, b.Annotations) || !same(a.Spec.Resources, b.Spec.Resources) ||
		a.Name != b.Name || a.Namespace != b.Namespace {
		return false
	}
	resources := func(list []v1.Container) map[string]v1.ResourceRequirements {
		out := map[string]v1.ResourceRequirements{}
		for i := range list {
			out[list[i].Name] = list[i].Resources
		}
		return out
	}
	return same(resources(a.Spec.Containers), resources(b.Spec.Containers)) &&
		same(resources(a.Spec.InitContainers), resources(b.Spec.InitContainers))
}

func fsGroupOf(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}
