package manifest

import (
	"maps"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestStatic(t *testing.T) {
	pod := onePod(t, []byte(smallPod))
	before := pod.DeepCopy()
	got := Static(pod, "/etc/kubernetes/manifests/web.yaml", fileOptions())
	if !reflect.DeepEqual(pod, before) {
		t.Error("the pod it was given has changed")
	}
	if got.Name != "web-node-1" || got.Namespace != "default" || got.Spec.NodeName != "Node-1" {
		t.Errorf("got %s/%s on %s", got.Namespace, got.Name, got.Spec.NodeName)
	}
	want := map[string]string{
		HashAnnotation: string(got.UID), SourceAnnotation: "file", FirstSeenAnnotation: "2026-07-08T09:10:11.00000012Z",
	}
	if got.UID == "" || !maps.Equal(got.Annotations, want) {
		t.Errorf("UID %s, annotations %v, want %v", got.UID, got.Annotations, want)
	}
	if !reflect.DeepEqual(got.Status, v1.PodStatus{Phase: v1.PodPending}) {
		t.Errorf("status %+v", got.Status)
	}
	always := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	if !reflect.DeepEqual(got.Spec.Tolerations, []v1.Toleration{always}) {
		t.Errorf("tolerations %+v", got.Spec.Tolerations)
	}
}

func TestStaticKeepsWhatIsSet(t *testing.T) {
	pod := onePod(t, []byte(`
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: other
  uid: 0b0b
  annotations: {mine: "1", kubernetes.io/config.hash: forged}
spec:
  nodeName: elsewhere
  tolerations: [{key: a, operator: Exists}, {operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  containers: [{name: main, image: busybox}]
status: {phase: Running, podIP: 10.0.0.1}
`))
	got := Static(pod, "/a", fileOptions())
	if got.UID != "0b0b" || got.Namespace != "other" || got.Annotations["mine"] != "1" {
		t.Errorf("got %+v", got.ObjectMeta)
	}
	if got.Annotations[HashAnnotation] != "0b0b" || got.Spec.NodeName != "Node-1" || got.Status.PodIP != "" {
		t.Errorf("taken from the manifest: %+v, node %s", got.Annotations, got.Spec.NodeName)
	}
	if n := len(got.Spec.Tolerations); n != 2 || got.Spec.Tolerations[1].TolerationSeconds != nil {
		t.Errorf("tolerations %+v", got.Spec.Tolerations)
	}
	opts := fileOptions()
	opts.Source = HTTPSource
	if fromURL := Static(pod, "http://a", opts); fromURL.Spec.Tolerations[1].TolerationSeconds == nil {
		t.Error("a pod from a URL was given the toleration of one from a file")
	}
}
