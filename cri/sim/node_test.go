package sim_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// waitForReady makes a call wait until the client has a connection.
var waitForReady = grpc.WaitForReady(true)

// reconnected returns once the client has a connection to the current life of the runtime. A call can still be sent into the old
// connection, and fails then.
func (h *harness) reconnected() {
	h.t.Helper()
	for {
		_, err := h.rt.Version(h.ctx, &runtimeapi.VersionRequest{}, waitForReady)
		if status.Code(err) != codes.Unavailable {
			h.must(err)
			return
		}
	}
}

func TestDownAndUp(t *testing.T) {
	h := start(t, script(sim.ExitAfter(time.Minute, 5)))
	sb, c := h.run("web")
	h.Down()
	h.Down()
	_, err := h.rt.Version(h.ctx, &runtimeapi.VersionRequest{})
	fails(t, err, codes.Unavailable, "")
	if _, err := net.Dial("unix", h.Endpoint()[len("unix://"):]); err == nil {
		t.Fatal("somebody listens")
	}
	if s := h.Snapshot(); s.Up || s.Running() != 1 || s.Ready() != 1 {
		t.Fatalf("down: %+v", s)
	}
	h.clock.Advance(time.Minute)
	h.must(h.Up())
	if h.Up() == nil {
		t.Error("up twice")
	}
	h.reconnected()
	h.exited(c, 5, "Error")
	if !h.ready(sb) {
		t.Error("the sandbox did not survive")
	}
}

func TestRuntimeDeath_LeavesAnInterruptedStartCreated(t *testing.T) {
	h := start(t, sim.Options{})
	h.slow("StartContainer")
	config := pod("web")
	c, err := h.create(h.sandbox(config), config, containerOf(config, "main", 0))
	h.must(err)
	done := background(func() error { return h.start(c) })
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.Down()
	fails(t, <-done, codes.Unavailable, "")
	h.must(h.Up())
	h.reconnected()
	h.state(c, runtimeapi.ContainerState_CONTAINER_CREATED, 0, "")
	done = background(func() error { return h.start(c) })
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.clock.Advance(time.Second)
	h.must(<-done)
	h.broken()
}

func TestReboot(t *testing.T) {
	h := start(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{"init": {sim.ExitAfter(0, 0)}}}})
	sb, c := h.run("web")
	config := pod("web")
	side, err := h.create(sb, config, containerOf(config, "side", 0))
	h.must(err)
	done, err := h.create(sb, config, containerOf(config, "init", 0))
	h.must(err)
	h.must(h.start(done))
	h.must(h.Reboot())
	h.reconnected()
	h.exited(c, 255, "Unknown")
	h.exited(done, 0, "Completed")
	h.state(side, runtimeapi.ContainerState_CONTAINER_CREATED, 0, "")
	if h.ready(sb) || h.Snapshot().Sandbox("web").IP != "" {
		t.Error("the sandbox survived")
	}
	config.Metadata.Attempt = 1
	h.sandbox(config)
	h.broken()
}

// The caller learns of a lost sandbox from the first rejected call.
func TestALostSandboxRefusesContainers(t *testing.T) {
	h := start(t, sim.Options{})
	config := pod("web")
	sb := h.sandbox(config)
	h.must(h.Reboot())
	h.reconnected()
	_, err := h.create(sb, config, containerOf(config, "late", 0))
	fails(t, err, codes.Unknown, "is not running")
	h.broken() // the caller could not have known
	_, err = h.create(sb, config, containerOf(config, "late", 0))
	fails(t, err, codes.Unknown, "is not running")
	h.broken("create-in-dead-sandbox")
}

func TestExit(t *testing.T) {
	h := start(t, sim.Options{})
	_, b := h.run("b")
	h.must(h.Exit("uid-b", "main", 137, "OOMKilled"))
	h.exited(b, 137, "OOMKilled")
	if h.Exit("uid-b", "main", 0, "") == nil {
		t.Error("a container ended twice")
	}
}

func TestConditionsAndVersion(t *testing.T) {
	for _, old := range []bool{false, true} {
		h := start(t, sim.Options{Old: old, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
			Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}})
		h.SetRuntimeReady(false, "starting")
		h.SetNetworkReady(false, "no CNI")
		st, err := h.rt.Status(h.ctx, &runtimeapi.StatusRequest{Verbose: true})
		h.must(err)
		for i, want := range []*runtimeapi.RuntimeCondition{
			{Type: "RuntimeReady", Reason: "RuntimeNotReady", Message: "starting"},
			{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "no CNI"},
		} {
			if got := st.Status.Conditions[i]; got.Status || got.Type != want.Type || got.Reason != want.Reason ||
				got.Message != want.Message {
				t.Errorf("condition %v", got)
			}
		}
		if hasNew := len(st.RuntimeHandlers) == 2 && st.Features.GetSupplementalGroupsPolicy(); hasNew == old {
			t.Errorf("old %v: status %v", old, st)
		}
		h.SetRuntimeReady(true, "")
		h.SetNetworkReady(true, "")
		st, err = h.rt.Status(h.ctx, &runtimeapi.StatusRequest{})
		h.must(err)
		if !st.Status.Conditions[0].Status || !st.Status.Conditions[1].Status {
			t.Errorf("conditions %v", st)
		}
		version, err := h.rt.Version(h.ctx, &runtimeapi.VersionRequest{})
		h.must(err)
		if want := map[bool]string{false: "2.4.2", true: "1.6.20"}[old]; version.RuntimeVersion != want ||
			version.RuntimeName != "containerd" || version.RuntimeApiVersion != "v1" {
			t.Errorf("version %v", version)
		}
		config, err := h.rt.RuntimeConfig(h.ctx, &runtimeapi.RuntimeConfigRequest{})
		if old {
			fails(t, err, codes.Unimplemented, "")
		} else if h.must(err); config.Linux.CgroupDriver != runtimeapi.CgroupDriver_CGROUPFS {
			t.Errorf("config %v", config)
		}
	}
}

func TestOldRuntimeLacksWhatCameLater(t *testing.T) {
	h := start(t, sim.Options{Old: true})
	sb, c := h.run("web")
	if st := h.status(c); st.ImageId != "" || st.User != nil || st.Resources != nil {
		t.Errorf("status %v", st)
	}
	stream, err := h.rt.GetContainerEvents(h.ctx, &runtimeapi.GetEventsRequest{})
	h.must(err)
	_, err = stream.Recv()
	fails(t, err, codes.Unimplemented, "")
	_, err = h.rt.UpdatePodSandboxResources(h.ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sb})
	fails(t, err, codes.Unimplemented, "")
}

func TestStartAndClose(t *testing.T) {
	dir := t.TempDir()
	if _, err := sim.Start(sim.Options{Socket: filepath.Join(dir, "no", "such", "folder")}); err == nil {
		t.Error("listened in a folder that does not exist")
	}
	path := filepath.Join(dir, "s")
	r, err := sim.Start(sim.Options{Socket: path, Script: sim.Script{Default: sim.Sequence{sim.ExitAfter(time.Hour, 0)}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Start(sim.Options{Socket: path}); err == nil {
		t.Error("two runtimes on one socket")
	}
	r.Close()
	r.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left over: %v", err)
	}
	if r.Up() == nil || r.Reboot() == nil {
		t.Error("up after Close")
	}
}

func TestCloseCutsOffCallsUnderWay(t *testing.T) {
	h := start(t, sim.Options{Clock: sim.RealClock{}})
	h.Inject(sim.Fault{Call: "Version", Kind: sim.Delay, Delay: time.Hour})
	done := background(func() error {
		_, err := h.rt.Version(context.Background(), &runtimeapi.VersionRequest{})
		return err
	})
	h.begun("Version")
	h.Close()
	fails(t, <-done, codes.Unavailable, "")
}

// tardyClock never manages to cancel a function: all run when fire is called.
type tardyClock struct {
	sim.RealClock
	mu    sync.Mutex
	armed []func()
}

func (c *tardyClock) AfterFunc(_ time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = append(c.armed, f)
	return func() bool { return false }
}

func (c *tardyClock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.armed {
		f()
	}
}

func TestNothingHappensAfterClose(t *testing.T) {
	clock := &tardyClock{}
	opts := script(sim.ExitAfter(time.Hour, 0))
	opts.Clock = clock
	h := start(t, opts)
	h.run("web")
	closed := background(func() error { h.Close(); return nil })
	h.must(h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return !s.Up }))
	h.Close() // waits for the lock, behind the first call's cancellation
	clock.fire()
	h.must(<-closed)
	if h.Snapshot().Running() != 1 {
		t.Error("a container ended after Close")
	}
}

func TestCloseCancelsWhatIsArmed(t *testing.T) {
	h := start(t, script(sim.ExitAfter(time.Hour, 0)))
	h.run("web")
	h.Close()
	if n := h.clock.Pending(); n != 0 {
		t.Errorf("%d timers left", n)
	}
}
