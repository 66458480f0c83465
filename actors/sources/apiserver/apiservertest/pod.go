// Package apiservertest makes pods as an API server would, for tests.
package apiservertest

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// Bound returns the pod of a manifest as an API server has it after its assignment to a node: defaulted, with a UID, and
// Pending.
func Bound(manifest, node string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.Unmarshal([]byte(manifest), pod); err != nil {
		return nil, err
	}
	podspec.Default(pod)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.UID == "" {
		pod.UID = uuid.NewUUID()
	}
	pod.Generation, pod.CreationTimestamp, pod.Spec.NodeName = 1, metav1.Now().Rfc3339Copy(), node
	pod.Status.Phase = v1.PodPending
	return pod, nil
}
