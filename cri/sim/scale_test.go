package sim_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eachPod calls do for many pods, sixteen at a time.
func eachPod(n int, do func(name string) error) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	errs := make(chan error, n)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs <- do("pod-" + strconv.Itoa(i))
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *harness) bringUp(name string) error {
	config := pod(name)
	resp, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	for _, containerOf := range []*runtimeapi.ContainerConfig{containerOf(config, "main", 0), containerOf(config, "side", 0)} {
		c, err := h.create(resp.PodSandboxId, config, containerOf)
		if err != nil {
			return err
		}
		if err := h.start(c); err != nil {
			return err
		}
	}
	list, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": "uid-" + name}}})
	if err == nil && len(list.Containers) != 2 {
		err = fmt.Errorf("pod %s lists %d containers", name, len(list.Containers))
	}
	return err
}

func (h *harness) bringDown(name string) error {
	list, err := h.rt.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": "uid-" + name}}})
	if err != nil {
		return err
	}
	for _, sb := range list.Items {
		containers, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{PodSandboxId: sb.Id}})
		if err != nil {
			return err
		}
		for _, c := range containers.Containers {
			if err := h.stop(c.Id, 30); err != nil {
				return err
			}
		}
		if err := h.stopSandbox(sb.Id); err != nil {
			return err
		}
		if err := h.removeSandbox(sb.Id); err != nil {
			return err
		}
	}
	return nil
}

func TestAThousandPods(t *testing.T) {
	const pods = 1000
	h := start(t, sim.Options{})
	events := h.listen()
	up := background(func() error {
		return h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return s.Running() == 2*pods })
	})
	h.must(eachPod(pods, h.bringUp))
	h.must(<-up)
	h.must(eachPod(pods, h.bringDown))
	if s := h.Snapshot(); len(s.Sandboxes)+len(s.Containers) != 0 {
		t.Errorf("left over: %d sandboxes, %d containers", len(s.Sandboxes), len(s.Containers))
	}
	kinds := map[runtimeapi.ContainerEventType]int{}
	for range pods * 3 * 4 {
		e, err := events.Recv()
		h.must(err)
		kinds[e.ContainerEventType]++
	}
	for kind, n := range kinds {
		if n != pods*3 {
			t.Errorf("%d events %s, want %d", n, kind, pods*3)
		}
	}
	h.broken()
}

// BenchmarkPod measures the whole life of a pod with two containers beside a thousand others.
func BenchmarkPod(b *testing.B) {
	h := start(b, sim.Options{})
	for i := range 1000 {
		if err := h.bringUp("old-" + strconv.Itoa(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := "new-" + strconv.Itoa(i)
		if err := h.bringUp(name); err != nil {
			b.Fatal(err)
		}
		if err := h.bringDown(name); err != nil {
			b.Fatal(err)
		}
	}
}
