package host_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

// A container that starts while its pod is removed is asked to stop before its sandbox is.
func TestRemovePod_StopsAContainerThatStartsMeanwhile(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{})
	pod := &v1.Pod{}
	pod.UID, pod.Namespace, pod.Name = "u", "ns", "p"
	labels := map[string]string{cri.LabelPodUID: "u", cri.LabelPodName: "p", cri.LabelPodNamespace: "ns", cri.LabelContainerName: "c"}
	config := &runtimeapi.PodSandboxConfig{Labels: labels, Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u", Namespace: "ns"}}
	if _, err := h.CRI.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "i"}, nil, config); err != nil {
		t.Fatal(err)
	}
	sandbox, err := h.CRI.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	entered, leave, started := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := h.Ops.Do(t.Context(), cri.StartPrefix("u")+"container/c/0", time.Minute, func(ctx context.Context) (any, error) {
			close(entered)
			<-leave
			id, err := h.CRI.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{Labels: labels,
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "i"}}, config)
			if err != nil {
				return nil, err
			}
			return nil, h.CRI.StartContainer(ctx, id)
		})
		started <- err
	}()
	<-entered
	removed := make(chan error, 1)
	go func() { removed <- h.RemovePod(t.Context(), pod) }()
	for len(h.Ops.InFlight("u/remove")) == 0 {
		time.Sleep(time.Millisecond)
	}
	close(leave)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if v := runtime.Violations(); len(v) > 0 {
		t.Errorf("violations: %v", v)
	}
	if left, err := h.CRI.ListPodSandbox(t.Context(), nil); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A sandbox that the process has stopped is removed without another stop. One that it has not, or that is ready, is stopped.
func TestRemovePod_StopsEachSandboxOnce(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, h *host.Host, sandbox string)
		want   int // stops in all
	}{
		"not stopped": {func(*testing.T, *host.Host, string) {}, 1},
		"stopped": {func(t *testing.T, h *host.Host, sandbox string) {
			if err := h.Ops.StopSandbox(t.Context(), h.CRI, "u", sandbox, time.Minute, nil); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"stopped by an earlier process": {func(t *testing.T, h *host.Host, sandbox string) {
			if err := h.Ops.StopSandbox(t.Context(), h.CRI, "u", sandbox, time.Minute, nil); err != nil {
				t.Fatal(err)
			}
			h.Ops = cri.NewOperations()
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h, runtime := hosttest.Simulated(t, sim.Options{})
			pod := &v1.Pod{}
			pod.UID, pod.Namespace, pod.Name = "u", "ns", "p"
			sandbox, err := h.CRI.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
				Labels:   map[string]string{cri.LabelPodUID: "u", cri.LabelPodName: "p", cri.LabelPodNamespace: "ns"},
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u", Namespace: "ns"}}, "")
			if err != nil {
				t.Fatal(err)
			}
			test.before(t, h, sandbox)
			if err := h.RemovePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if got := len(runtime.Calls("StopPodSandbox")); got != test.want {
				t.Errorf("got %d stops of the sandbox, want %d", got, test.want)
			}
			if left, err := h.CRI.ListPodSandbox(t.Context(), nil); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if h.Ops.SandboxStopped("u", sandbox) {
				t.Error("the stop is still recorded after the removal")
			}
		})
	}
}
