package pod

import (
	"encoding/json"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/pod/known"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

func limited(memory string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	return v1.ResourceRequirements{Limits: list, Requests: list}
}

// carrying returns a running container that carries resources.
func carrying(t *testing.T, spec *v1.Container, r v1.ResourceRequirements) messages.ContainerFact {
	t.Helper()
	hash, err := translate.SpecHash(spec)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	return messages.ContainerFact{
		ID: "k1", Name: spec.Name, State: messages.ContainerRunning,
		Annotations: map[string]string{cri.AnnotationSpecHash: hash, cri.AnnotationResources: string(text)},
	}
}

// An edit of the resources replaces the container. Equal quantities in another notation are no edit, and a kubelet's container,
// which carries no resources, is left alone. So is a container of the API server that is resized: it runs on.
func TestAnEditOfResourcesReplacesTheContainer(t *testing.T) {
	spec := &v1.Container{Name: "c0", Image: "image", Resources: limited("1024Mi")}
	of := func(pod *v1.Pod) *Machine {
		return &Machine{State: known.State{Pod: pod, Set: settings.Default(&Host{}, backoff.Policy{}, nil)}}
	}
	machine, c := of(testPod(v1.RestartPolicyAlways, 0, 1)), &known.Container{Name: "c0", Role: known.Role{Spec: spec}}
	for text, want := range map[string]bool{"1024Mi": false, "1Gi": false, "2Gi": true} {
		f := carrying(t, spec, limited(text))
		if got := machine.Outdated(c, &known.Attempt{ContainerFact: f}); got != want {
			t.Errorf("made with %s: outdated %v, want %v", text, got, want)
		}
	}
	foreign := carrying(t, spec, limited("2Gi"))
	delete(foreign.Annotations, cri.AnnotationResources)
	if machine.Outdated(c, &known.Attempt{ContainerFact: foreign}) {
		t.Error("a container that does not carry its resources is replaced")
	}
	resized := carrying(t, spec, limited("2Gi"))
	resized.Annotations[cri.AnnotationHash] = strconv.FormatUint(translate.KubeletHash(spec), 16)
	resized.Annotations[cri.AnnotationSpecHash] = "1-of another release's defaults"
	if machine = of(cloudPod(v1.RestartPolicyAlways, 0, 1)); machine.Outdated(c, &known.Attempt{ContainerFact: resized}) {
		t.Error("a container of the API server is replaced for its resources, or for a default")
	}
	c.Spec = spec.DeepCopy()
	c.Spec.Image = "another"
	if !machine.Outdated(c, &known.Attempt{ContainerFact: resized}) {
		t.Error("a container of the API server keeps an old image")
	}
}

// The status contains the resources of the container's creation, not the edited ones.
func TestTheStatusTellsTheResourcesInForce(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].Resources = limited("2Gi")
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	m := w.machine
	m.Set.Resources = settings.Default(&Host{}, backoff.Policy{}, nil).Resources
	for made, want := range map[string]string{"1Gi": "1Gi", "": "2Gi"} {
		f := m.Container("c0").Newest()
		f.Annotations = nil
		if made != "" {
			f.Annotations = carrying(t, &pod.Spec.Containers[0], limited(made)).Annotations
		}
		s := m.status().ContainerStatuses[0]
		if got := s.Resources.Limits.Memory().String(); got != want || s.AllocatedResources.Memory().String() != want {
			t.Errorf("made with %q: told %s and %s, want %s", made, got, s.AllocatedResources.Memory(), want)
		}
	}
}

// The status of mounts includes mounts below them: whether these are read-only depends on the pod and on the runtime (KEP-3857).
func TestTheStatusTellsVolumeMounts(t *testing.T) {
	enabled, disabled, possible := v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible
	for _, c := range []struct {
		mount v1.VolumeMount
		able  bool
		want  *v1.RecursiveReadOnlyMode
	}{
		{v1.VolumeMount{}, true, nil},
		{v1.VolumeMount{ReadOnly: true}, true, &disabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &disabled}, true, &disabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &possible}, true, &enabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &possible}, false, &disabled},
		{v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &enabled}, true, &enabled},
	} {
		pod := testPod(v1.RestartPolicyAlways, 0, 1)
		c.mount.Name, c.mount.MountPath = "data", "/data"
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{c.mount}
		w := newWorld(pod)
		w.set.RecursiveReadOnly = func(string) bool { return c.able }
		w.restart()
		w.settle()
		got := w.status.ContainerStatuses[0].VolumeMounts
		if len(got) != 1 || got[0].Name != "data" || got[0].MountPath != "/data" || got[0].ReadOnly != c.mount.ReadOnly {
			t.Fatalf("%+v: told %+v", c.mount, got)
		}
		if mode := got[0].RecursiveReadOnly; (mode == nil) != (c.want == nil) || (mode != nil && *mode != *c.want) {
			t.Errorf("%+v, able %v: told %v, want %v", c.mount, c.able, mode, c.want)
		}
	}
}

// Mounts below a volume depend on the sandbox's handler, which is the default one only for pods without a RuntimeClass.
func TestVolumeMountsAreAsTheHandlerCan(t *testing.T) {
	possible := v1.RecursiveReadOnlyIfPossible
	for _, c := range []struct {
		able, handler string // of the sandbox
		unmade        bool   // no sandbox yet
		class         *string
		want          v1.RecursiveReadOnlyMode
	}{
		{able: "second", handler: "second", class: new("a"), want: v1.RecursiveReadOnlyEnabled},
		{able: "second", class: new("a"), want: v1.RecursiveReadOnlyDisabled},
		{able: "second", handler: "second", want: v1.RecursiveReadOnlyEnabled},
		{able: "", handler: "second", class: new("a"), want: v1.RecursiveReadOnlyDisabled},
		{able: "", unmade: true, class: new("a"), want: v1.RecursiveReadOnlyDisabled},
		{able: "", unmade: true, want: v1.RecursiveReadOnlyEnabled},
	} {
		pod := testPod(v1.RestartPolicyAlways, 0, 1)
		pod.Spec.RuntimeClassName = c.class
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true,
			RecursiveReadOnly: &possible}}
		w := newWorld(pod)
		w.handler = c.handler
		w.set.RecursiveReadOnly = func(handler string) bool { return handler == c.able }
		w.restart()
		if c.unmade {
			w.network(false)
		}
		w.settle()
		mode := w.status.ContainerStatuses[0].VolumeMounts[0].RecursiveReadOnly
		if mode == nil || *mode != c.want {
			t.Errorf("%+v: told %v", c, mode)
		}
		check(t, w)
	}
}
