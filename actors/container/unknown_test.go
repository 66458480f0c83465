package container

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// A container in state unknown is stopped, so the state must be reported twice in a row.
func TestOneWrongStatusDoesNotEndAStart(t *testing.T) {
	for times, want := range map[int]messages.ContainerState{1: messages.ContainerRunning, 2: messages.ContainerUnknown} {
		h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
		pod := podOf(v1.Container{Name: "c", Image: "image"})
		w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
			Sandbox: sandbox(t, h, pod, 0)}
		runtime.Inject(sim.Fault{Call: "ContainerStatus", Times: times, Kind: sim.Wrong})
		done := start(t.Context(), h, w)
		if done.fact == nil || done.fact.State != want || (done.reason == nil) != (want == messages.ContainerRunning) {
			t.Errorf("wrong %d times: %+v", times, done)
		}
	}
}
