package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// create1 creates container main of pod web in its sandbox.
func (h *harness) create1(ctx context.Context, sandbox string) (string, error) {
	config := pod("web")
	resp, err := h.rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: containerOf(config, "main", 0), SandboxConfig: config,
	})
	return resp.GetContainerId(), err
}

func (h *harness) containers() int { return len(h.Snapshot().Containers) }

func TestFaultError(t *testing.T) {
	h := start(t, sim.Options{})
	sb := h.sandbox(pod("web"))
	h.Inject(sim.Fault{Call: "CreateContainer", Kind: sim.Error})
	_, err := h.create1(h.ctx, sb)
	fails(t, err, codes.Unknown, "injected fault")
	h.Inject(sim.Fault{Call: "CreateContainer", Kind: sim.Error, Err: status.Error(codes.ResourceExhausted, "no memory")})
	_, err = h.create1(h.ctx, sb)
	fails(t, err, codes.ResourceExhausted, "no memory")
	if h.containers() != 0 {
		t.Error("the work was done")
	}
	if _, err := h.create1(h.ctx, sb); err != nil {
		t.Errorf("a fault struck more often than once: %v", err)
	}
	calls := h.Calls("CreateContainer")
	if calls[0].Fault != sim.Error || calls[2].Fault != "" || calls[1].Code != codes.ResourceExhausted {
		t.Errorf("journal %+v", calls)
	}
}

func TestFaultDelay(t *testing.T) {
	h := start(t, sim.Options{})
	sb := h.sandbox(pod("web"))
	h.Inject(sim.Fault{Call: "CreateContainer", Kind: sim.Delay, Delay: time.Minute})
	done := background(func() error {
		_, err := h.create1(h.ctx, sb)
		return err
	})
	h.must(h.clock.WaitPending(h.ctx, 1))
	_, err := h.create1(h.ctx, sb)
	fails(t, err, codes.Unknown, "is reserved for")
	if h.containers() != 0 {
		t.Error("the work was done early")
	}
	h.clock.Advance(time.Minute)
	h.must(<-done)
	if h.containers() != 1 {
		t.Error("the work was not done")
	}
}

func TestFaultHang(t *testing.T) {
	h := start(t, sim.Options{})
	sb := h.sandbox(pod("web"))
	release := h.Inject(sim.Fault{Call: "CreateContainer", Kind: sim.Hang, Times: 2})
	ctx, cancel := context.WithCancel(h.ctx)
	first := background(func() error { _, err := h.create1(ctx, sb); return err })
	h.begun("CreateContainer")
	cancel()
	fails(t, <-first, codes.Canceled, "")
	h.idle()
	if h.containers() != 0 {
		t.Error("the work was done")
	}
	second := background(func() error { _, err := h.create1(h.ctx, sb); return err })
	h.begun("CreateContainer")
	release()
	h.must(<-second)
	release()
	if h.containers() != 1 {
		t.Error("the released call did not do its work")
	}
}

func TestFaultDropAndSwallow(t *testing.T) {
	for _, kind := range []sim.Kind{sim.Drop, sim.Swallow} {
		h := start(t, sim.Options{})
		sb := h.sandbox(pod("web"))
		h.Inject(sim.Fault{Call: "CreateContainer", Kind: kind})
		ctx, cancel := context.WithCancel(h.ctx)
		done := background(func() error { _, err := h.create1(ctx, sb); return err })
		h.must(h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return len(s.Containers) == 1 }))
		want := codes.Unavailable
		if kind == sim.Swallow {
			cancel()
			want = codes.Canceled
		}
		fails(t, <-done, want, "")
		cancel()
		_, err := h.create1(h.ctx, sb)
		fails(t, err, codes.Unknown, h.Snapshot().Container("web", "main").ID)
		h.idle()
		if e := h.Calls("CreateContainer")[0]; e.ID != h.Snapshot().Containers[0].ID || e.Code != want {
			t.Errorf("%s: journal %+v", kind, e)
		}
	}
}

func TestFaultWrong(t *testing.T) {
	h := start(t, sim.Options{})
	h.Inject(sim.Fault{Kind: sim.Wrong, Times: -1})
	run, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: pod("web")})
	h.must(err)
	sb := h.Snapshot().Sandbox("web").ID
	id, err := h.create1(h.ctx, sb)
	h.must(err)
	c := h.Snapshot().Container("web", "main").ID
	if run.PodSandboxId != "" || id != "" {
		t.Errorf("IDs %q %q", run.PodSandboxId, id)
	}
	h.must(h.start(c))
	if st := h.status(c); st.State != runtimeapi.ContainerState_CONTAINER_UNKNOWN || st.Id != c {
		t.Errorf("status %v", st)
	}
	sandbox, err := h.rt.PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb})
	h.must(err)
	if sandbox.Status != nil {
		t.Errorf("sandbox status %v", sandbox)
	}
	containers, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	h.must(err)
	sandboxes, err := h.rt.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	h.must(err)
	if containers.Containers[0].State != runtimeapi.ContainerState_CONTAINER_UNKNOWN ||
		sandboxes.Items[0].State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("lists %v %v", containers, sandboxes)
	}
	if s := h.Snapshot(); s.Ready() != 1 || s.Running() != 1 {
		t.Error("the wrong answers are the truth")
	}
	if calls := h.Calls("CreateContainer"); calls[0].ID != c {
		t.Errorf("the journal has the wrong ID %q", calls[0].ID)
	}
}

func TestFaultCrash(t *testing.T) {
	for kind, want := range map[sim.Kind]int{sim.CrashBefore: 0, sim.CrashAfter: 1} {
		h := start(t, sim.Options{})
		sb := h.sandbox(pod("web"))
		h.Inject(sim.Fault{Call: "CreateContainer", Kind: kind})
		_, err := h.create1(h.ctx, sb)
		fails(t, err, codes.Unavailable, "")
		h.must(h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return !s.Up }))
		h.must(h.Up())
		if got := h.containers(); got != want {
			t.Errorf("%s: %d containers, want %d", kind, got, want)
		}
		h.reconnected()
	}
}

func TestFaultSelection(t *testing.T) {
	for name, tc := range map[string]struct {
		fault sim.Fault
		hit   []string // the pods with a failing StartContainer, in the order a1 b1 a2 b2 a3
	}{
		"by pod":          {sim.Fault{Pod: "b", Times: -1}, []string{"b1", "b2"}},
		"by container":    {sim.Fault{Container: "side", Times: -1}, nil},
		"second alone":    {sim.Fault{Nth: 2}, []string{"b1"}},
		"second of a pod": {sim.Fault{Pod: "a", Nth: 2}, []string{"a2"}},
		"two from second": {sim.Fault{Nth: 2, Times: 2}, []string{"b1", "a2"}},
		"all from fourth": {sim.Fault{Nth: 4, Times: -1}, []string{"b2", "a3"}},
		"by request": {sim.Fault{Times: -1, Match: func(t sim.Target, req any) bool {
			return req.(*runtimeapi.StartContainerRequest).ContainerId == t.ID && t.PodUID == "uid-a3"
		}}, []string{"a3"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, sim.Options{})
			tc.fault.Call, tc.fault.Kind = "StartContainer", sim.Error
			cancel := h.Inject(tc.fault)
			var hit []string
			for _, p := range []string{"a1", "b1", "a2", "b2", "a3"} {
				config := pod(p)
				c, err := h.create(h.sandbox(config), config, containerOf(config, "main", 0))
				h.must(err)
				if h.start(c) != nil {
					hit = append(hit, p)
				}
			}
			sameSet(t, "struck", hit, tc.hit)
			cancel()
			h.run("a4")
			h.run("b4")
		})
	}
}

func TestTheFirstInjectedFaultStrikesAndAllCount(t *testing.T) {
	h := start(t, sim.Options{})
	fault := func(text string, nth int) sim.Fault {
		return sim.Fault{Call: "Version", Nth: nth, Kind: sim.Error, Err: status.Error(codes.Internal, text)}
	}
	h.Inject(fault("one", 1))
	h.Inject(fault("two", 1)) // used up by the call that "one" affects
	h.Inject(fault("three", 2))
	for _, want := range []string{"one", "three", ""} {
		_, err := h.rt.Version(h.ctx, &runtimeapi.VersionRequest{})
		if got := status.Convert(err).Message(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	h := start(t, sim.Options{})
	for _, f := range []sim.Fault{
		{Call: "CreateContianer", Kind: sim.Error},
		{Call: "CreateContainer", Kind: "Explode"},
		{Call: "CreateContainer"},
		{Call: sim.ContainerEvent, Kind: sim.Error},
		{Call: "GetContainerEvents", Kind: sim.Wrong},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("accepted %+v", f)
				}
			}()
			h.Inject(f)
		}()
	}
}

func TestScriptedErrorsAreNoStatus(t *testing.T) {
	h := start(t, sim.Options{Images: map[string]sim.Image{"bad": {Err: errors.New("disk on fire")}}})
	_, err := h.img.PullImage(h.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "bad"}})
	fails(t, err, codes.Unknown, "disk on fire")
}
