package translate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// podField returns the value of a fieldRef: the paths the downward API documents
// for environment variables, and whole label and annotation maps.
func podField(pod *v1.Pod, path string, src EnvSources) (string, error) {
	if field, key, ok := cutSubscript(path); ok {
		switch field {
		case "metadata.labels":
			return pod.Labels[key], checkKey(path, key)
		case "metadata.annotations":
			return pod.Annotations[key], checkKey(path, strings.ToLower(key))
		}
		return "", fmt.Errorf("fieldPath %s takes no key", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		if len(src.PodIPs) == 0 {
			return "", nil
		}
		return src.PodIPs[0], nil
	case "status.podIPs":
		return strings.Join(src.PodIPs, ","), nil
	case "status.hostIP", "status.hostIPs":
		if len(src.HostIPs) == 0 {
			return "", fmt.Errorf("fieldPath %s: the node's address is not known", path)
		}
		if path == "status.hostIP" {
			return src.HostIPs[0], nil
		}
		return strings.Join(src.HostIPs, ","), nil
	}
	return "", fmt.Errorf("fieldPath %q is not supported", path)
}

// cutSubscript splits metadata.labels['key'].
func cutSubscript(path string) (field, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	field, key, ok = strings.Cut(inner, "['")
	return field, key, ok && field != ""
}

func checkKey(path, key string) error {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return fmt.Errorf("fieldPath %s: %s", path, strings.Join(wrong, "; "))
	}
	return nil
}

// formatMap formats a map as the downward API does: key="value", one per line.
func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// resourceField returns a resourceFieldRef's value in units of its divisor, rounded up. A limit that is not set is the pod's, or
// the node's allocatable amount.
func resourceField(
	pod *v1.Pod, container *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList,
) (string, error) {
	if ref.ContainerName != "" {
		if container = findContainer(pod, ref.ContainerName); container == nil {
			return "", fmt.Errorf("resource %s: the pod has no container %s", ref.Resource, ref.ContainerName)
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var quantity resource.Quantity
	switch kind {
	case "requests":
		quantity = container.Resources.Requests[v1.ResourceName(name)]
	case "limits":
		quantity = limitOf(pod, container, v1.ResourceName(name), allocatable)
	default:
		return "", fmt.Errorf("resource %q is neither a request nor a limit", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	switch {
	case name == string(v1.ResourceCPU):
		return divide(quantity.MilliValue(), divisor.MilliValue()), nil
	case name == string(v1.ResourceMemory), name == string(v1.ResourceEphemeralStorage), isHugePages(v1.ResourceName(name)):
		return divide(quantity.Value(), divisor.Value()), nil
	}
	return "", fmt.Errorf("resource %q is not supported", ref.Resource)
}

// limitOf returns the limit, or the most that the container can use. Huge pages are never overcommitted and have no such
// fallback.
func limitOf(pod *v1.Pod, container *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || isHugePages(name) {
		return limit
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) && resourcehelper.IsSupportedPodLevelResource(name) {
		if podLimit := pod.Spec.Resources.Limits[name]; !podLimit.IsZero() {
			return podLimit
		}
	}
	return allocatable[name]
}

func divide(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}

func findContainer(pod *v1.Pod, name string) *v1.Container {
	for c := range containersOf(&pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// FieldValue returns the value of a fieldRef of a downwardAPI volume, which has no paths for addresses.
func FieldValue(pod *v1.Pod, path string) (string, error) { return podField(pod, path, EnvSources{}) }

// ResourceValue returns the value of a resourceFieldRef that names a container, in units of its divisor, rounded up. A limit that
// is not set is the pod's, or the node's allocatable amount.
func ResourceValue(pod *v1.Pod, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	return resourceField(pod, &v1.Container{}, ref, allocatable)
}
