package container

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// The cgroup v2 values of memory QoS (KEP-2570) reach the runtime with the container.
func TestMemoryQoSReachesTheRuntime(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	h.Node.CgroupV2, h.Node.MemoryQoS, h.Node.ProtectMemory, h.Node.ThrottlingFactor = true, true, true, 0.9
	pod := podOf(v1.Container{Name: "c", Image: "image", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")},
		Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("200Mi")},
	}})
	done := start(t.Context(), h, messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
		Sandbox: sandbox(t, h, pod, 0)})
	if done.fact == nil || done.reason != nil {
		t.Fatalf("%+v", done)
	}
	want := map[string]string{"memory.low": "104857600", "memory.high": "199229440", "memory.oom.group": "1"}
	if got := runtime.Snapshot().Container("web", "c").Resources.GetUnified(); !maps.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}
