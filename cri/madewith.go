package cri

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// CarryMade adds to the annotations of a container what it is made with: the inverse of MadeWith.
func CarryMade(annotations map[string]string, pod *v1.Pod, container *v1.Container) error {
	own := ptr.Deref(pod.Spec.Resources, v1.ResourceRequirements{}) // said of none, too: earlier releases say nothing
	for key, r := range map[string]*v1.ResourceRequirements{
		AnnotationResources: &container.Resources, AnnotationPodResources: &own,
	} {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		annotations[key] = string(text)
	}
	return nil
}

// MadeWith are the resources that a container and its pod had when it was made, by the annotations of the container; nil for what
// it does not carry, and empty for a pod that had none of its own. What cannot be read is as if it were not there: anybody may
// have written it.
func MadeWith(annotations map[string]string) (container, pod *v1.ResourceRequirements) {
	read := func(key string) *v1.ResourceRequirements {
		text, ok := annotations[key]
		was := &v1.ResourceRequirements{}
		if !ok || json.Unmarshal([]byte(text), was) != nil {
			return nil
		}
		return was
	}
	return read(AnnotationResources), read(AnnotationPodResources)
}
