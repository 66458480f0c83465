package host_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
