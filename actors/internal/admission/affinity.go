package admission

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// affinity looks at spec.nodeSelector and at what is required of the node.
func affinity(node *Node, pod *v1.Pod) Refusal {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node.Object)
	switch {
	case err != nil:
		return predicate(ReasonNodeAffinity, "the pod's node affinity cannot be read: "+err.Error())
	case matches:
		return Refusal{}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		want := pod.Spec.NodeSelector[key]
		switch label, ok := node.Object.Labels[key]; {
		case !ok:
			return predicate(ReasonNodeAffinity,
				fmt.Sprintf("the pod's nodeSelector wants the label %s=%s, which this node has not", key, want))
		case label != want:
			return predicate(ReasonNodeAffinity, fmt.Sprintf("the pod's nodeSelector wants the label %s=%s, and this node has %s",
				key, want, label))
		}
	}
	return predicate(ReasonNodeAffinity, "this node's labels are not what the pod's node affinity requires")
}
