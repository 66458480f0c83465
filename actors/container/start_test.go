package container

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

func podOf(c v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{c}},
	}
}

// A container carries the resources that it was created with, since its spec may be edited later.
func TestContainer_CarriesResourcesOfCreation(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	pod := podOf(v1.Container{Name: "c", Image: "image", Resources: v1.ResourceRequirements{
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("1000Mi")},
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("0.25")},
	}})
	done := start(t.Context(), h, messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
		Sandbox: sandbox(t, h, pod, 0), Groups: []int64{70}})
	if done.fact == nil || done.reason != nil {
		t.Fatalf("%+v", done)
	}
	if user := done.fact.User; user == nil || !slices.Equal(user.Groups, []int64{70}) {
		t.Errorf("its user is %+v, want the group 70", user)
	}
	var got v1.ResourceRequirements
	text := done.fact.Annotations[cri.AnnotationResources]
	if err := json.Unmarshal([]byte(text), &got); err != nil ||
		!equality.Semantic.DeepEqual(got, pod.Spec.Containers[0].Resources) {
		t.Errorf("it carries %q: %v", text, err)
	}
}

// Runtimes do not change the state of a container that was created and never started. Its stop succeeds all the same.
func TestStop_NeverRunContainerAtOnce(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	pod := podOf(v1.Container{Name: "c", Image: "image"})
	w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
	config, sandbox, err := configs(t.Context(), h, w)
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CRI.CreateContainer(t.Context(), w.Sandbox.ID, config, sandbox)
	if err != nil {
		t.Fatal(err)
	}
	fact := messages.ContainerFact{ID: id, Name: "c", SandboxID: w.Sandbox.ID, State: messages.ContainerUnknown}
	done := stop(t.Context(), h, messages.StopContainer{UID: "u1", Name: "c", Pod: pod, Fact: fact, Grace: time.Second})
	if done.failed != nil || done.fact.State != messages.ContainerCreated {
		t.Errorf("%+v", done)
	}
}

// A container that was found is not started until its status can be read.
func TestFoundContainer_IsReadBeforeStart(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	pod := podOf(v1.Container{Name: "c", Image: "image"})
	w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
	first := start(t.Context(), h, w)
	if first.fact == nil || first.reason != nil {
		t.Fatalf("%+v", first)
	}
	w.Adopt = first.fact
	runtime.Inject(sim.Fault{Call: "ContainerStatus", Kind: sim.Error, Times: 2})
	if done := start(t.Context(), h, w); done.reason == nil || done.fact != nil {
		t.Errorf("%+v", done)
	}
	if done := start(t.Context(), h, w); done.reason != nil || done.fact == nil || done.fact.ID != first.fact.ID || done.started {
		t.Errorf("%+v", done)
	}
	if v := runtime.Violations(); len(v) > 0 {
		t.Error(v)
	}
}
