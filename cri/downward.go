package cri

import v1 "k8s.io/api/core/v1"

// FieldValue is what a fieldRef of a downwardAPI volume says of the pod: those paths that need no address.
func FieldValue(pod *v1.Pod, path string) (string, error) { return podField(pod, path, EnvSources{}) }

// ResourceValue is what a resourceFieldRef that names a container says, in units of its divisor, rounded up. A limit that
// is not set is the pod's, or what is allocatable on the node.
func ResourceValue(pod *v1.Pod, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	return resourceField(pod, &v1.Container{}, ref, allocatable)
}
