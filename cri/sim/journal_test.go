package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
)

func TestJournal(t *testing.T) {
	h := start(t, sim.Options{})
	config := pod("web")
	sb := h.sandbox(config)
	c, err := h.create(sb, config, containerOf(config, "main", 2))
	h.must(err)
	h.must(h.start(c))
	h.clock.Advance(time.Second)
	fails(t, h.start(c), codes.Unknown, "")
	h.must(h.stop(c, 1))
	h.must(h.remove(c))
	h.must(h.remove(c)) // removed, but its name remains known
	containerOf := func(call string) sim.Target {
		return sim.Target{Call: call, PodUID: "uid-web", PodName: "web", PodNamespace: "default",
			Container: "main", Attempt: 2, ID: c, Image: "app"}
	}
	want := []sim.Target{
		{Call: "RunPodSandbox", PodUID: "uid-web", PodName: "web", PodNamespace: "default", ID: sb},
		containerOf("CreateContainer"), containerOf("StartContainer"), containerOf("StartContainer"),
		containerOf("StopContainer"), containerOf("RemoveContainer"), containerOf("RemoveContainer"),
	}
	got := h.Journal()
	if len(got) != len(want) {
		t.Fatalf("%d calls, want %d", len(got), len(want))
	}
	for i, e := range got {
		if e.Target != want[i] {
			t.Errorf("call %d: %+v, want %+v", i, e.Target, want[i])
		}
		if !e.Done() || e.EndSeq < e.Seq || i > 0 && e.Seq < got[i-1].EndSeq {
			t.Errorf("call %d is out of order: %d to %d", i, e.Seq, e.EndSeq)
		}
		if failed := i == 3; failed != (e.Err != "") || failed != (e.Code == codes.Unknown) {
			t.Errorf("call %d: error %q, %s", i, e.Err, e.Code)
		}
	}
	if !got[2].Time.Equal(epoch) || !got[3].Time.Equal(epoch.Add(time.Second)) {
		t.Errorf("times %v %v", got[2].Time, got[3].Time)
	}
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	h := start(t, sim.Options{})
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	if err := h.WaitFor(ctx, func(sim.Snapshot) bool { return false }); err != context.Canceled {
		t.Errorf("WaitFor: %v", err)
	}
	if _, err := h.WaitCall(ctx, func(sim.Entry) bool { return false }); err != context.Canceled {
		t.Errorf("WaitCall: %v", err)
	}
	if err := h.clock.WaitPending(ctx, 1); err != context.Canceled {
		t.Errorf("WaitPending: %v", err)
	}
}

func TestWaitForSeesAChange(t *testing.T) {
	h := start(t, script(sim.ExitAfter(time.Minute, 0)))
	_, c := h.run("web")
	before := h.Snapshot()
	done := background(func() error {
		return h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return !s.Container("web", "main").Running() })
	})
	h.clock.Advance(time.Minute)
	h.must(<-done)
	if got := before.Container("web", "main"); !got.Running() || got.ID != c {
		t.Error("an old snapshot has changed")
	}
	if now := h.Snapshot(); now.Version <= before.Version || now.Container("web", "none") != nil || now.Sandbox("none") != nil {
		t.Error("the new snapshot is wrong")
	}
}

func TestViolations(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(h *harness)
		want []string
	}{
		"two ready sandboxes": {func(h *harness) {
			config := pod("web")
			h.sandbox(config)
			config.Metadata.Attempt = 1
			h.sandbox(config)
		}, []string{"two-ready-sandboxes"}},
		"two pods of one name": {func(h *harness) {
			config := pod("web")
			h.sandbox(config)
			config.Metadata.Uid = "uid-web-2"
			h.sandbox(config)
		}, []string{"two-pods-one-name"}},
		"successor in its turn": {func(h *harness) {
			config := pod("web")
			h.must(h.stopSandbox(h.sandbox(config)))
			config.Metadata.Uid = "uid-web-2"
			h.sandbox(config)
		}, nil},
		"two running": {func(h *harness) {
			sb, _ := h.run("web")
			config := pod("web")
			c, err := h.create(sb, config, containerOf(config, "main", 1))
			h.must(err)
			h.must(h.start(c))
		}, []string{"two-running"}},
		"create in a stopped sandbox": {func(h *harness) {
			config := pod("web")
			sb := h.sandbox(config)
			h.must(h.stopSandbox(sb))
			_, err := h.create(sb, config, containerOf(config, "main", 0))
			fails(h.t, err, codes.Unknown, "is not running")
		}, []string{"create-in-dead-sandbox"}},
		"create in no sandbox": {func(h *harness) {
			config := pod("web")
			_, err := h.create("none", config, containerOf(config, "main", 0))
			fails(h.t, err, codes.NotFound, "failed to find sandbox id")
		}, []string{"create-in-dead-sandbox"}},
		"start in a stopped sandbox": {func(h *harness) {
			config := pod("web")
			sb := h.sandbox(config)
			c, err := h.create(sb, config, containerOf(config, "main", 0))
			h.must(err)
			h.must(h.stopSandbox(sb))
			fails(h.t, h.start(c), codes.Unknown, "is not running")
			h.exited(c, 128, "StartError")
		}, []string{"start-in-dead-sandbox"}},
		"start in a lost sandbox": {func(h *harness) {
			config := pod("web")
			c, err := h.create(h.sandbox(config), config, containerOf(config, "main", 0))
			h.must(err)
			h.must(h.Reboot())
			h.reconnected()
			fails(h.t, h.start(c), codes.Unknown, "is not running")
		}, nil},
		"stop over running": {func(h *harness) {
			sb, _ := h.run("web")
			h.must(h.stopSandbox(sb))
		}, []string{"stopped-over-running"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, sim.Options{})
			tc.do(h)
			h.broken(tc.want...)
		})
	}
}
