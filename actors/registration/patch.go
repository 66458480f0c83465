package registration

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// metadataPatch returns the strategic merge patch of labels and annotations from was to now; nil without a difference.
func metadataPatch(was, now *v1.Node) ([]byte, error) {
	if equality.Semantic.DeepEqual(was.Labels, now.Labels) && equality.Semantic.DeepEqual(was.Annotations, now.Annotations) {
		return nil, nil
	}
	bare := func(n *v1.Node) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}}
	}
	return patch(was.UID, bare(was), bare(now), nil)
}

// statusPatch returns the strategic merge patch of the status. Conditions merge by type. The API also merges addresses by type,
// although a node may have two of a type: so they are replaced as a whole, as kubelets do.
func statusPatch(was, now *v1.Node) ([]byte, error) {
	var addresses []any
	a, b := &v1.Node{Status: *was.Status.DeepCopy()}, &v1.Node{Status: *now.Status.DeepCopy()}
	if !equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses) {
		for _, one := range b.Status.Addresses {
			addresses = append(addresses, one)
		}
		addresses = append(addresses, map[string]string{"$patch": "replace"})
	}
	a.Status.Addresses, b.Status.Addresses = nil, nil
	return patch(was.UID, a, b, addresses)
}

// patch returns a patch with the Node's UID: a Node that was created again meanwhile refuses it with a conflict.
func patch(uid types.UID, was, now *v1.Node, addresses []any) ([]byte, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	text, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Node{})
	if err != nil {
		return nil, fmt.Errorf("the patch of the Node cannot be computed: %w", err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	within(out, "metadata")["uid"] = uid
	if addresses != nil {
		within(out, "status")["addresses"] = addresses
	}
	return json.Marshal(out)
}

func within(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}
