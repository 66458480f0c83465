package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPodFromStartToFinish(t *testing.T) {
	h := start(t, sim.Options{})
	config := pod("web")
	sb := h.sandbox(config)
	if !h.ready(sb) {
		t.Fatal("a new sandbox is not ready")
	}
	c, err := h.create(sb, config, containerOf(config, "main", 3))
	h.must(err)
	h.state(c, runtimeapi.ContainerState_CONTAINER_CREATED, 0, "")
	h.clock.Advance(time.Second)
	h.must(h.start(c))
	h.running(c)
	h.clock.Advance(time.Second)
	h.must(h.stop(c, 30))
	h.exited(c, 0, "Completed")

	st := h.status(c)
	second := int64(time.Second)
	if at := epoch.UnixNano(); st.CreatedAt != at || st.StartedAt != at+second || st.FinishedAt != at+2*second {
		t.Errorf("times %d %d %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
	}
	if st.Metadata.Attempt != 3 || st.Image.Image != "docker.io/library/app:latest" ||
		!strings.HasPrefix(st.ImageRef, "docker.io/library/app@sha256:") || !strings.HasPrefix(st.ImageId, "sha256:") {
		t.Errorf("status %v", st)
	}

	h.must(h.stopSandbox(sb))
	if h.ready(sb) {
		t.Error("ready after StopPodSandbox")
	}
	h.must(h.removeSandbox(sb))
	if s := h.Snapshot(); len(s.Sandboxes)+len(s.Containers) != 0 {
		t.Errorf("left over: %v %v", s.Sandboxes, s.Containers)
	}
	h.broken()
}

func TestStopAndRemoveAreIdempotent(t *testing.T) {
	h := start(t, sim.Options{})
	sb, c := h.run("web")
	for range 2 {
		h.must(h.stop(c, 1))
	}
	for range 2 {
		h.must(h.remove(c))
	}
	h.must(h.stop(c, 1))
	for range 2 {
		h.must(h.stopSandbox(sb))
	}
	for range 2 {
		h.must(h.removeSandbox(sb))
	}
	h.must(h.stopSandbox(sb))
	h.broken()
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	h := start(t, sim.Options{})
	sb, c := h.run("web")
	h.must(h.stop(c, 1))
	h.must(h.stopSandbox(sb))
	h.must(h.removeSandbox(sb))
	_, err := h.rt.ContainerStatus(h.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c})
	fails(t, err, codes.NotFound, "an error occurred when try to find container")
	_, err = h.rt.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb})
	fails(t, err, codes.NotFound, "an error occurred when try to find sandbox")
	fails(t, h.start(c), codes.NotFound, c)
}

func TestNamesAreReservedUntilRemoved(t *testing.T) {
	for _, tc := range []struct {
		old  bool
		hint string
	}{{false, "; check if another CreateContainer request is in progress"}, {true, ""}} {
		h := start(t, sim.Options{Old: tc.old})
		config := pod("web")
		sb := h.sandbox(config)
		_, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		fails(t, err, codes.Unknown,
			`failed to reserve sandbox name "web_default_uid-web_0": name "web_default_uid-web_0" is reserved for "`+sb+`"`)
		c, err := h.create(sb, config, containerOf(config, "main", 1))
		h.must(err)
		_, err = h.create(sb, config, containerOf(config, "main", 1))
		name := `"main_web_default_uid-web_1"`
		fails(t, err, codes.Unknown, `failed to reserve container name `+name+tc.hint+`: name `+name+` is reserved for "`+c+`"`)
		if _, err := h.create(sb, config, containerOf(config, "main", 2)); err != nil {
			t.Errorf("another attempt has another name: %v", err)
		}
		h.must(h.remove(c))
		if _, err := h.create(sb, config, containerOf(config, "main", 1)); err != nil {
			t.Errorf("the name of a removed container is free: %v", err)
		}
		h.must(h.stopSandbox(sb))
		_, err = h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		fails(t, err, codes.Unknown, "is reserved for")
		h.must(h.removeSandbox(sb))
		h.sandbox(config)
	}
}

func TestName_IsReservedDuringItsCall(t *testing.T) {
	h := start(t, sim.Options{})
	h.slow("RunPodSandbox")
	first := background(func() error {
		_, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: pod("web")})
		return err
	})
	h.must(h.clock.WaitPending(h.ctx, 1))
	_, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: pod("web")})
	fails(t, err, codes.Unknown, "is reserved for")
	if n := len(h.Snapshot().Sandboxes); n != 0 {
		t.Fatalf("%d sandboxes before the call has done its work", n)
	}
	h.clock.Advance(time.Second)
	h.must(<-first)
	if n := h.Snapshot().Ready(); n != 1 {
		t.Fatalf("%d sandboxes ready", n)
	}
}

func TestStartIsOnceAndFromCreatedOnly(t *testing.T) {
	h := start(t, sim.Options{})
	_, c := h.run("web")
	fails(t, h.start(c), codes.Unknown, "container is in CONTAINER_RUNNING state")
	h.must(h.stop(c, 1))
	fails(t, h.start(c), codes.Unknown, "container is in CONTAINER_EXITED state")
	h.broken("started-twice", "started-twice")
}

func TestRequestsThatCannotWork(t *testing.T) {
	h := start(t, sim.Options{})
	config := pod("web")
	sb := h.sandbox(config)
	_, err := h.create(sb, config, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "x"}, Image: &runtimeapi.ImageSpec{Image: "absent"},
	})
	fails(t, err, codes.NotFound, `failed to resolve image "absent"`)
	_, err = h.create(sb, config, &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "app"}})
	fails(t, err, codes.Unknown, "container config must include metadata")
	_, err = h.create(sb, nil, containerOf(config, "main", 0))
	fails(t, err, codes.Unknown, "pod sandbox config must include metadata")
	_, err = h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{})
	fails(t, err, codes.Unknown, "sandbox config must include metadata")
	_, err = h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: pod("b"), RuntimeHandler: "kata"})
	fails(t, err, codes.Unknown, `no runtime for "kata" is configured`)
	h.sandbox(pod("b")) // the failed call has left no name reserved
	h.broken()
}

func TestAddresses(t *testing.T) {
	h := start(t, sim.Options{})
	ip := func(id string) string {
		resp, err := h.rt.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		h.must(err)
		return resp.Status.Network.Ip
	}
	a, b := h.sandbox(pod("a")), h.sandbox(pod("b"))
	if ip(a) != "10.88.0.2" || ip(b) != "10.88.0.3" {
		t.Errorf("addresses %s %s", ip(a), ip(b))
	}
	h.must(h.stopSandbox(a))
	if ip(a) != "" {
		t.Errorf("a stopped sandbox has address %s", ip(a))
	}
	onHost := pod("host")
	onHost.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	h.SetNetworkReady(false, "cni plugin not initialized")
	if got := ip(h.sandbox(onHost)); got != "" {
		t.Errorf("a pod in the host's network has address %s", got)
	}
	_, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: pod("c")})
	fails(t, err, codes.Unknown, "cni plugin not initialized")
	h.SetNetworkReady(true, "")
	if got := ip(h.sandbox(pod("c"))); got != "10.88.0.4" {
		t.Errorf("address %s", got)
	}
}

func TestUpdateResources(t *testing.T) {
	h := start(t, sim.Options{})
	_, c := h.run("web")
	for _, change := range []*runtimeapi.LinuxContainerResources{{CpuShares: 512}, {MemoryLimitInBytes: 1 << 30}} {
		_, err := h.rt.UpdateContainerResources(h.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: c, Linux: change})
		h.must(err)
	}
	if got := h.status(c).Resources.Linux; got.CpuShares != 512 || got.MemoryLimitInBytes != 1<<30 {
		t.Errorf("resources %v", got)
	}
	_, err := h.rt.UpdateContainerResources(h.ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: "x"})
	fails(t, err, codes.NotFound, "failed to find container")
}

func TestRemovalWaitsForAStart(t *testing.T) {
	h := start(t, sim.Options{})
	h.slow("StartContainer")
	config := pod("web")
	sb := h.sandbox(config)
	c, err := h.create(sb, config, containerOf(config, "main", 0))
	h.must(err)
	done := background(func() error { return h.start(c) })
	h.must(h.clock.WaitPending(h.ctx, 1))
	fails(t, h.remove(c), codes.Unknown, "container is in starting state, can't be removed")
	fails(t, h.start(c), codes.Unknown, "container is already in starting state")
	h.must(h.stopSandbox(sb))
	fails(t, h.removeSandbox(sb), codes.Unknown, "container is in starting state, can't be removed")
	h.clock.Advance(time.Second)
	fails(t, <-done, codes.Unknown, "is not running")
	h.must(h.removeSandbox(sb))
	h.broken("started-twice", "start-in-dead-sandbox")
}

func TestUpdatesOfPodAndRuntime(t *testing.T) {
	h := start(t, sim.Options{})
	sb, _ := h.run("web")
	_, err := h.rt.UpdatePodSandboxResources(h.ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sb})
	h.must(err)
	_, err = h.rt.UpdatePodSandboxResources(h.ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "x"})
	fails(t, err, codes.NotFound, "failed to find sandbox")
	_, err = h.rt.UpdateRuntimeConfig(h.ctx, &runtimeapi.UpdateRuntimeConfigRequest{})
	h.must(err)
}
