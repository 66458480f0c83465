package translate

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/cri"
)

// Entries that would let the runtime's lists grow without a bound are dropped; entries that are read back are kept.
func TestLabelsAndAnnotationsAreBounded(t *testing.T) {
	size := func(m map[string]string) (n int) {
		for k, v := range m {
			n += len(k) + len(v)
		}
		return n
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Labels: map[string]string{"app": "web"}}}
	pod.Annotations = map[string]string{"kubernetes.io/config.source": "file", "small": "x",
		"applied": strings.Repeat("x", maxEntry)}
	for i := range 2000 {
		pod.Annotations[fmt.Sprintf("many-%04d", i)] = strings.Repeat("y", 100)
		pod.Labels[fmt.Sprintf("many-%04d", i)] = strings.Repeat("y", 63)
	}
	c := &v1.Container{Name: "c", Image: "i", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
		Exec: &v1.ExecAction{Command: []string{strings.Repeat("x", maxEntry)}}}}}
	for i := range 1000 {
		c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: int32(i)})
	}
	pod.Spec.Containers = []v1.Container{*c}
	node := recordedNodes()["cgroupv2"]
	sandbox, err := NewSandboxConfig(pod, node, SandboxParams{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := NewContainerConfig(pod, c, node, ContainerParams{ImageRef: "i", Annotations: pod.Annotations})
	if err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]map[string]string{
		"sandbox labels": sandbox.Labels, "sandbox annotations": sandbox.Annotations, "annotations": config.Annotations,
	} {
		if n := size(m); n > maxEntries+1000 { // the identities of pod and container come on top
			t.Errorf("%s have %d bytes", what, n)
		}
	}
	if a := sandbox.Annotations; a["kubernetes.io/config.source"] != "file" || a["small"] != "x" ||
		sandbox.Labels["app"] != "web" ||
		sandbox.Labels[cri.LabelPodUID] != "u" {
		t.Error("what is small was left out")
	}
	a := config.Annotations
	if a[cri.AnnotationPreStopHandler] != "" || a[cri.AnnotationPorts] != "" || config.Labels[cri.LabelPodUID] != "u" || Changed(c, a) {
		t.Errorf("%v", a)
	}
	if pod.Annotations["applied"] == "" {
		t.Error("the pod was changed")
	}
}
