package status

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

// mirrorAnnotation marks the mirror pod of the static pod with this hash.
const mirrorAnnotation = v1.MirrorPodAnnotationKey

func isMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[mirrorAnnotation]
	return ok
}

// hashOf returns the hash that identifies a static pod among others of its name, as the kubelet does.
func hashOf(pod *v1.Pod) string {
	return cmp.Or(pod.Annotations[manifest.HashAnnotation], string(pod.UID))
}

// contentsAnnotation holds the hash of the static pod's contents, where the hash of the kubelet does not depend on them.
const contentsAnnotation = "playlet.dev/contents-hash"

// computedUID is the form of the UIDs that are computed from a manifest.
var computedUID = regexp.MustCompile("^[0-9a-f]{32}$")

// contentsOf returns a hash of the manifest of a static pod that sets its own UID. It returns "" if the pod's UID is such a hash.
func contentsOf(static *v1.Pod) string {
	if computedUID.MatchString(hashOf(static)) {
		return ""
	}
	annotations := maps.Clone(static.Annotations)
	delete(annotations, manifest.FirstSeenAnnotation)
	delete(annotations, contentsAnnotation) // a manifest copied from a mirror pod has it
	text, err := json.Marshal([]any{static.Labels, annotations, &static.Spec})
	if err != nil {
		return "" // unreachable for a pod that was decoded from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// mirrorOf returns the mirror pod to create for a static pod. NodeRestriction admits it if it is bound to the node of its
// creator, is owned by that Node object alone, and refers to no other object (KEP-1314). A static pod that refers to objects
// of --object-dir therefore has no mirror pod: without the references, the spec would differ.
func mirrorOf(static *v1.Pod, node string, nodeUID types.UID) *v1.Pod {
	controller := true
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: static.Namespace, Name: static.Name, Labels: static.Labels, Annotations: maps.Clone(static.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node, UID: nodeUID, Controller: &controller,
			}},
		},
		Spec: *static.Spec.DeepCopy(),
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[mirrorAnnotation] = hashOf(static)
	delete(out.Annotations, contentsAnnotation)
	if sum := contentsOf(static); sum != "" {
		out.Annotations[contentsAnnotation] = sum
	}
	out.Spec.NodeName = node
	return out
}

// stale returns the reason why the mirror pod no longer represents the static pod, or "" if it does.
func stale(mirror, static *v1.Pod, nodeUID types.UID) string {
	switch {
	case mirror.Annotations[mirrorAnnotation] != hashOf(static):
		return "it stands for another version of the static pod"
	case mirror.Annotations[contentsAnnotation] != contentsOf(static):
		return "it shows another version of the manifest"
	case mirror.Generation > 1: // it is created with 1; each change of its spec increments it (KEP-5067)
		return "its spec was changed"
	case nodeUID != "" && slices.ContainsFunc(mirror.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID != nodeUID // the garbage collector removes it
	}):
		return "it belongs to another Node object"
	}
	for k, v := range static.Labels {
		if mirror.Labels[k] != v {
			return "its labels were changed"
		}
	}
	return ""
}
