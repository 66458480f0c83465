package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCancelledCallsLeaveWhatContainerdLeaves(t *testing.T) {
	h := start(t, sim.Options{})
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "PullImage"} {
		h.slow(call)
	}
	config := pod("web")
	// cancelled runs a call until it waits in its middle, then cancels it, and waits until it has ended in the runtime too.
	cancelled := func(call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(h.ctx)
		done := background(func() error { return call(ctx) })
		h.must(h.clock.WaitPending(h.ctx, 1))
		cancel()
		fails(t, <-done, codes.Canceled, "")
		h.idle()
	}
	finished := func(call func() error) {
		t.Helper()
		done := background(call)
		h.must(h.clock.WaitPending(h.ctx, 1))
		h.clock.Advance(time.Second)
		h.must(<-done)
	}
	runSandbox := func(ctx context.Context) error {
		_, err := h.rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		return err
	}
	cancelled(runSandbox)
	finished(func() error { return runSandbox(h.ctx) })
	sb := h.Snapshot().Sandbox("web").ID

	create := func(ctx context.Context) error {
		_, err := h.rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: sb, Config: containerOf(config, "main", 0), SandboxConfig: config})
		return err
	}
	cancelled(create)
	if n := len(h.Snapshot().Containers); n != 0 {
		t.Fatalf("%d containers after a cancelled create", n)
	}
	finished(func() error { return create(h.ctx) })
	c := h.Snapshot().Container("web", "main").ID

	cancelled(func(ctx context.Context) error {
		_, err := h.rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c})
		return err
	})
	h.exited(c, 128, "StartError")

	cancelled(func(ctx context.Context) error {
		_, err := h.img.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "other"}})
		return err
	})
	if refs := h.Snapshot().Images; len(refs) != 2 {
		t.Errorf("images after a cancelled pull: %v", refs)
	}
	h.broken()
}

// idle waits until no call is in progress.
func (h *harness) idle() {
	h.t.Helper()
	for _, e := range h.Journal() {
		if !e.Done() {
			_, err := h.WaitCall(h.ctx, func(now sim.Entry) bool { return now.Seq == e.Seq && now.Done() })
			h.must(err)
		}
	}
}

// slow makes every call of that name take a second; with no name, every call.
func (h *harness) slow(call string) {
	h.Inject(sim.Fault{Call: call, Kind: sim.Delay, Delay: time.Second, Times: -1})
}
