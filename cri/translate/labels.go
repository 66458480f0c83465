package translate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cri"
)

// A runtime returns labels and annotations in each of its lists, and a list of more than 16 MiB fails as a whole
// (maxMessageSize). An API object may have 256 KiB of annotations, and its hooks and ports may be larger still.
const (
	maxEntry   = 8 << 10  // bytes of one label or annotation, key and value
	maxEntries = 32 << 10 // bytes of all labels, or of all annotations, together
)

// bounded returns labels or annotations without the oversized ones. If the rest is still too large, it drops the biggest first,
// and those about the pod's source last. No reader of a sandbox or container needs the dropped ones: a hook in an annotation only
// serves an agent without the pod's spec.
func bounded(all map[string]string) map[string]string {
	out, sum := make(map[string]string, len(all)+3), 0 // the caller adds a few
	for key, value := range all {
		if size := len(key) + len(value); size <= maxEntry {
			out[key] = value
			sum += size
		}
	}
	if sum <= maxEntries {
		return out
	}
	origin := func(key string) int {
		if strings.HasPrefix(key, "kubernetes.io/config.") {
			return 1
		}
		return 0
	}
	keys := slices.SortedFunc(maps.Keys(out), func(a, b string) int {
		return cmp.Or(origin(a)-origin(b), len(b)+len(out[b])-len(a)-len(out[a]), cmp.Compare(a, b))
	})
	for _, key := range keys {
		if sum <= maxEntries {
			break
		}
		sum -= len(key) + len(out[key])
		delete(out, key)
	}
	return out
}

// sandboxLabels returns the pod's own labels, overridden by its identity.
func sandboxLabels(pod *v1.Pod) map[string]string {
	labels := bounded(pod.Labels)
	labels[cri.LabelPodName] = pod.Name
	labels[cri.LabelPodNamespace] = pod.Namespace
	labels[cri.LabelPodUID] = string(pod.UID)
	return labels
}

// containerLabels returns only the identity: the pod's labels are on its sandbox.
func containerLabels(pod *v1.Pod, container *v1.Container) map[string]string {
	return map[string]string{
		cri.LabelPodName:       pod.Name,
		cri.LabelPodNamespace:  pod.Namespace,
		cri.LabelPodUID:        string(pod.UID),
		cri.LabelContainerName: container.Name,
	}
}

// containerAnnotations returns the annotations needed to stop and report the container without its pod's spec. The kubelet's keys
// override extra (of device plugins, the back-off step).
func containerAnnotations(
	pod *v1.Pod, container *v1.Container, restartCount uint32, extra map[string]string,
) (map[string]string, error) {
	a := map[string]string{}
	a[cri.AnnotationHash] = strconv.FormatUint(KubeletHash(container), 16)
	a[cri.AnnotationRestartCount] = strconv.FormatUint(uint64(restartCount), 10)
	a[cri.AnnotationTerminationMessagePath] = container.TerminationMessagePath
	a[cri.AnnotationTerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[cri.AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[cri.AnnotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	asJSON := map[string]any{}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		asJSON[cri.AnnotationPreStopHandler] = container.Lifecycle.PreStop
	}
	if len(container.Ports) > 0 {
		asJSON[cri.AnnotationPorts] = container.Ports
	}
	if err := addJSON(a, asJSON); err != nil {
		return nil, err
	}
	hash, err := SpecHash(container)
	if err != nil {
		return nil, err
	}
	a[cri.AnnotationSpecHash] = hash
	out := bounded(extra)
	maps.Copy(out, bounded(a))
	return out, nil
}

// CarryMade adds the resources at a container's creation to its annotations: the inverse of MadeWith.
func CarryMade(annotations map[string]string, pod *v1.Pod, container *v1.Container) error {
	own := ptr.Deref(pod.Spec.Resources, v1.ResourceRequirements{}) // recorded even if empty, unlike in earlier releases
	return addJSON(annotations, map[string]any{cri.AnnotationResources: container.Resources, cri.AnnotationPodResources: own})
}

func addJSON(annotations map[string]string, values map[string]any) error {
	for key, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		annotations[key] = string(text)
	}
	return nil
}

// MadeWith returns the resources that a container and its pod had at the container's creation, from its annotations: nil without
// an annotation, and empty for a pod without resources of its own.
func MadeWith(annotations map[string]string) (container, pod *v1.ResourceRequirements) {
	return Annotated[v1.ResourceRequirements](annotations, cri.AnnotationResources),
		Annotated[v1.ResourceRequirements](annotations, cri.AnnotationPodResources)
}

// Annotated returns the value of a JSON annotation of a container. It returns nil if there is none, or if it is invalid: any
// client of the runtime may have written it.
func Annotated[T any](annotations map[string]string, key string) *T {
	out := new(T)
	if text, ok := annotations[key]; !ok || json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	return out
}
