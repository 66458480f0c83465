package work

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/cri/translate"
)

// A resized container is throttled by the present setting of memory QoS (KEP-2570). If its request now equals its limit, it is
// not throttled any more, and the runtime must receive that.
func TestMemoryQoS_OfResizedContainer(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	h.Node.CgroupV2, h.Node.MemoryQoS, h.Node.ProtectMemory, h.Node.ThrottlingFactor = true, true, true, 0.9
	pod := testPod()
	c := &pod.Spec.Containers[0]
	gets := func(request, limit string) {
		c.Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)},
			Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}}
	}
	gets("100Mi", "200Mi")
	id := made(t, h, pod)
	for _, step := range []struct {
		request, limit string
		want           map[string]string
	}{
		{"100Mi", "300Mi", map[string]string{"memory.low": "104857600", "memory.high": "293601280"}},
		{"300Mi", "300Mi", map[string]string{"memory.low": "314572800", "memory.high": "max"}},
		{"100Mi", "200Mi", map[string]string{"memory.low": "104857600", "memory.high": "199229440"}},
	} {
		gets(step.request, step.limit)
		if done := of[ContainerResized](t, h, ResizeContainer{Pod: pod, Spec: c, ID: id}); done.Failed != nil {
			t.Fatalf("%+v", done.Failed)
		}
		got := maps.Clone(runtime.Snapshot().Containers[0].Resources.GetUnified())
		delete(got, "memory.oom.group")
		if !maps.Equal(got, step.want) {
			t.Errorf("%s of %s: sent %v, want %v", step.request, step.limit, got, step.want)
		}
	}
}

// A resize of a container with CPUs of its own changes neither them nor the missing quota.
func TestResizeContainer_ExclusiveCPUs(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	cpus := "1,3"
	h.Node.CPUCFSQuota, h.Node.CPUCFSQuotaPeriod = true, 100*time.Millisecond
	h.Node.Pin = func(string, string) translate.Pin { return translate.Pin{CPUs: cpus, Unlimited: true} }
	pod := testPod()
	c := &pod.Spec.Containers[0]
	c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	id := made(t, h, pod)
	cpus = "2" // as the assignment that a late update would carry
	c.Resources.Limits[v1.ResourceMemory] = resource.MustParse("2Gi")
	if done := of[ContainerResized](t, h, ResizeContainer{Pod: pod, Spec: c, ID: id}); done.Failed != nil {
		t.Fatalf("%+v", done.Failed)
	}
	if r := runtime.Snapshot().Containers[0].Resources; r.GetCpusetCpus() != "1,3" || r.GetCpuQuota() != -1 ||
		r.GetMemoryLimitInBytes() != 2<<30 {
		t.Errorf("got %v", r)
	}
}

// made starts the sandbox of a pod and creates its first container.
func made(t *testing.T, h *host.Host, pod *v1.Pod) (id string) {
	t.Helper()
	sandbox := of[SandboxStarted](t, h, StartSandbox{Pod: pod})
	if sandbox.Fact == nil {
		t.Fatalf("%+v", sandbox)
	}
	config, err := translate.NewContainerConfig(pod, &pod.Spec.Containers[0], h.Node, translate.ContainerParams{ImageRef: "image"})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := h.SandboxConfig(pod, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = h.CRI.CreateContainer(t.Context(), sandbox.Fact.ID, config, whole); err != nil {
		t.Fatal(err)
	}
	return id
}
