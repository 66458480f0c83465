package pod

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

func limited(memory string) v1.ResourceRequirements {
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	return v1.ResourceRequirements{Limits: list, Requests: list}
}

// carrying is a running container that was made with resources.
func carrying(t *testing.T, spec *v1.Container, r v1.ResourceRequirements) messages.ContainerFact {
	t.Helper()
	hash, err := cri.SpecHash(spec)
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

// An edit of what a container may use takes effect: the container is replaced. Another way to write the same is no edit, and
// one that carries none, of a kubelet, is left alone. So is a container of the API server that is resized: it runs on.
func TestAnEditOfResourcesReplacesTheContainer(t *testing.T) {
	spec := &v1.Container{Name: "c0", Image: "image", Resources: limited("1024Mi")}
	of := func(pod *v1.Pod) *Machine {
		return &Machine{pod: pod, set: Settings{Changed: changed, ChangedImage: changedImage, Resources: madeWith}}
	}
	machine, c := of(testPod(v1.RestartPolicyAlways, 0, 1)), &con{name: "c0", spec: spec}
	for text, want := range map[string]bool{"1024Mi": false, "1Gi": false, "2Gi": true} {
		f := carrying(t, spec, limited(text))
		if got := machine.outdated(c, &f); got != want {
			t.Errorf("made with %s: outdated %v, want %v", text, got, want)
		}
	}
	foreign := carrying(t, spec, limited("2Gi"))
	delete(foreign.Annotations, cri.AnnotationResources)
	if machine.outdated(c, &foreign) {
		t.Error("a container that does not carry its resources is replaced")
	}
	resized := carrying(t, spec, limited("2Gi"))
	resized.Annotations[cri.AnnotationHash] = strconv.FormatUint(cri.KubeletHash(spec), 16)
	resized.Annotations[cri.AnnotationSpecHash] = "1-of another release's defaults"
	if machine = of(cloudPod(v1.RestartPolicyAlways, 0, 1)); machine.outdated(c, &resized) {
		t.Error("a container of the API server is replaced for its resources, or for a default")
	}
	c.spec = spec.DeepCopy()
	c.spec.Image = "another"
	if !machine.outdated(c, &resized) {
		t.Error("a container of the API server keeps an old image")
	}
}

// The status tells what a container was made with, not what is wanted by now.
func TestTheStatusTellsTheResourcesInForce(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, 0, 1)
	pod.Spec.Containers[0].Resources = limited("2Gi")
	w := newWorld(pod)
	w.step(nil)
	w.settle()
	m := w.machine
	m.set.Resources = madeWith
	for made, want := range map[string]string{"1Gi": "1Gi", "": "2Gi"} {
		f := &m.con("c0").facts[0]
		f.Annotations = nil
		if made != "" {
			f.Annotations = carrying(t, &pod.Spec.Containers[0], limited(made)).Annotations
		}
		s := m.status(w.now).ContainerStatuses[0]
		if got := s.Resources.Limits.Memory().String(); got != want || s.AllocatedResources.Memory().String() != want {
			t.Errorf("made with %q: told %s and %s, want %s", made, got, s.AllocatedResources.Memory(), want)
		}
	}
}

// Mounts are told with what is mounted below them: whether it is read-only depends on the wish and on the runtime (KEP-3857).
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
		w.set.RecursiveReadOnly = func() bool { return c.able }
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

// The sandbox carries the pod's start time, beside what the pod's author noted.
func TestASandboxCarriesTheStartTime(t *testing.T) {
	dir, err := os.MkdirTemp("", "pod") // a short path, as unix sockets have
	if err != nil {
		t.Fatal(err)
	}
	runtime, err := sim.Start(sim.Options{Socket: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: runtime.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		runtime.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	h := &host.Host{CRI: client, Ops: cri.NewOperations(), RequestTimeout: time.Minute, Node: cri.NodeFacts{PodLogsDir: filepath.Join(dir, "logs")}}
	start := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	for attempt, notes := range []map[string]string{nil, {"note": "kept"}} {
		pod := testPod(v1.RestartPolicyAlways, 0, 1)
		pod.Annotations = notes
		done := runSandbox(t.Context(), h, pod, StartSandbox{Attempt: uint32(attempt), Started: start})
		if done.Fact == nil || !done.Fact.PodStarted.Equal(start) {
			t.Fatalf("%+v, %v", done.Fact, done.Reason)
		}
		status, err := client.PodSandboxStatus(t.Context(), done.Fact.ID, false)
		if err != nil || status.GetStatus().GetAnnotations()["note"] != notes["note"] || len(pod.Annotations) != len(notes) {
			t.Errorf("annotations %v, the pod's %v, %v", status.GetStatus().GetAnnotations(), pod.Annotations, err)
		}
	}
}
