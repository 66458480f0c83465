package cri

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	grace, deletion := int64(30), int64(5)
	container := &v1.Container{
		Name: "app", Image: "a", TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		Ports:                    []v1.ContainerPort{{Name: "http", ContainerPort: 80}},
		Lifecycle:                &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"stop"}}}},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "u", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"k": "v"}, DeletionGracePeriodSeconds: &deletion,
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{*container}},
	}
	annotations, err := containerAnnotations(pod, container, 4, map[string]string{AnnotationBackoff: "3"})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := SpecHash(container)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseContainer(containerLabels(pod, container), annotations)
	want := ContainerInfo{
		ContainerName: "app", PodName: "web", PodNamespace: "default", PodUID: "u",
		Hash: KubeletHash(container), SpecHash: spec, RestartCount: 4,
		DeletionGracePeriod: &deletion, TerminationGracePeriod: &grace,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		PreStop: container.Lifecycle.PreStop, Ports: container.Ports, Backoff: "3",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("container: %v\n%+v\n%+v", err, got, want)
	}
}

func TestWhatCannotBeReadIsReported(t *testing.T) {
	labels := map[string]string{LabelPodName: "web", LabelPodUID: "u", LabelContainerName: "app"}
	annotations := map[string]string{
		AnnotationHash: "zz", AnnotationRestartCount: "-1", AnnotationTerminationMessagePath: "/p",
		AnnotationTerminationMessagePolicy: "File", AnnotationTerminationGracePeriod: "soon",
		AnnotationDeletionGracePeriod: "7", AnnotationPreStopHandler: "{", AnnotationPorts: `{"a":1}`,
	}
	info, err := ParseContainer(labels, annotations)
	for _, key := range []string{
		LabelPodNamespace + " is missing", AnnotationHash, AnnotationRestartCount,
		AnnotationTerminationGracePeriod, AnnotationPreStopHandler, AnnotationPorts,
	} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not reported: %v", key, err)
		}
	}
	if e, ok := errors.AsType[*LabelError](err); !ok || e.Key == "" {
		t.Errorf("%v", err)
	}
	if info.PodName != "web" || info.PodUID != "u" || info.DeletionGracePeriod == nil || *info.DeletionGracePeriod != 7 ||
		info.Hash != 0 || info.RestartCount != 0 || info.PreStop != nil || info.Ports != nil {
		t.Errorf("%+v", info)
	}
}

func FuzzParseContainer(f *testing.F) {
	f.Add("8e45cbd0", "3", "30", `{"exec":{"command":["x"]}}`, `[{"containerPort":80}]`)
	f.Add("", "-1", "1e9", "null", `{"containerPort":80}`)
	f.Add("ffffffffffffffffff", "99999999999", "", `{"httpGet":{"port":"x"}}`, "[null]")
	f.Fuzz(func(t *testing.T, hash, restarts, grace, handler, ports string) {
		info, err := ParseContainer(map[string]string{}, map[string]string{
			AnnotationHash: hash, AnnotationRestartCount: restarts, AnnotationTerminationGracePeriod: grace,
			AnnotationPreStopHandler: handler, AnnotationPorts: ports,
		})
		if err == nil {
			t.Error("missing labels were not reported")
		}
		if info.RestartCount > 1<<31-1 {
			t.Errorf("restart count %d", info.RestartCount)
		}
	})
}

// What would make the lists of the runtime grow without a bound is left out, and nothing that anybody reads back.
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
		if n := size(m); n > maxEntries+1000 { // the pod's identity, and what a container is known by, come on top
			t.Errorf("%s have %d bytes", what, n)
		}
	}
	if a := sandbox.Annotations; a["kubernetes.io/config.source"] != "file" || a["small"] != "x" ||
		sandbox.Labels["app"] != "web" ||
		sandbox.Labels[LabelPodUID] != "u" {
		t.Error("what is small was left out")
	}
	info, err := ParseContainer(config.Labels, config.Annotations)
	if err != nil || info.PodUID != "u" || info.PreStop != nil || info.Ports != nil || Changed(c, config.Annotations) {
		t.Errorf("%+v, %v", info, err)
	}
	if pod.Annotations["applied"] == "" {
		t.Error("the pod was changed")
	}
}
