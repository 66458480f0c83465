package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func script(b ...sim.Behaviour) sim.Options {
	return sim.Options{Script: sim.Script{Default: b}}
}

func TestExitByScript(t *testing.T) {
	h := start(t, script(sim.ExitAfter(time.Minute, 3)))
	_, c := h.run("web")
	h.clock.Advance(time.Minute - time.Nanosecond)
	h.running(c)
	h.clock.Advance(time.Nanosecond)
	h.exited(c, 3, "Error")
	if got := h.status(c).FinishedAt; got != epoch.Add(time.Minute).UnixNano() {
		t.Errorf("finished at %d", got)
	}
}

func TestExitAtOnceAndReasons(t *testing.T) {
	for _, tc := range []struct {
		b      sim.Behaviour
		code   int32
		reason string
	}{
		{sim.ExitAfter(0, 0), 0, "Completed"},
		{sim.ExitAfter(0, 1), 1, "Error"},
		{sim.Behaviour{Exits: true, Code: 137, Reason: "OOMKilled"}, 137, "OOMKilled"},
	} {
		h := start(t, script(tc.b))
		_, c := h.run("web")
		h.exited(c, tc.code, tc.reason)
	}
}

func TestSequenceByAttempt(t *testing.T) {
	h := start(t, script(sim.ExitAfter(0, 1), sim.ExitAfter(0, 2), sim.RunForever()))
	config := pod("web")
	sb := h.sandbox(config)
	for attempt, want := range []int32{1, 2, -1, -1} {
		c, err := h.create(sb, config, containerOf(config, "main", uint32(attempt)))
		h.must(err)
		h.must(h.start(c))
		if want >= 0 {
			h.exited(c, want, "Error")
			continue
		}
		h.running(c)
		h.must(h.stop(c, 1))
	}
}

func TestScriptPrecedence(t *testing.T) {
	code := func(n int32) sim.Sequence { return sim.Sequence{sim.ExitAfter(0, n)} }
	rules := sim.Script{
		Func: func(t sim.Target) (sim.Behaviour, bool) {
			return sim.ExitAfter(0, 1), t.PodName == "p1"
		},
		ByContainer: map[string]sim.Sequence{"p2/main": code(2), "p1/main": code(99), "main": code(3)},
		Default:     code(4),
	}
	h := start(t, sim.Options{Script: rules})
	for _, tc := range []struct {
		pod, container string
		want           int32
	}{{"p1", "main", 1}, {"p2", "main", 2}, {"p3", "main", 3}, {"p4", "side", 4}} {
		config := pod(tc.pod)
		c := containerOf(config, tc.container, 0)
		id, err := h.create(h.sandbox(config), config, c)
		h.must(err)
		h.must(h.start(id))
		h.exited(id, tc.want, "Error")
	}
	h = start(t, sim.Options{})
	_, c := h.run("p5")
	h.running(c)
}

func TestStartError(t *testing.T) {
	h := start(t, script(sim.Behaviour{StartError: "exec: no such file"}))
	config := pod("web")
	c, err := h.create(h.sandbox(config), config, containerOf(config, "main", 0))
	h.must(err)
	fails(t, h.start(c), codes.Unknown, "exec: no such file")
	h.exited(c, 128, "StartError")
}

func TestGrace(t *testing.T) {
	for name, tc := range map[string]struct {
		b      sim.Behaviour
		code   int32
		takes  time.Duration
		timers int // the process's own exit, and the grace period
	}{
		"in time":  {sim.Behaviour{Term: sim.Term{Delay: 4 * time.Second, Code: 7}}, 7, 4 * time.Second, 2},
		"too slow": {sim.Behaviour{Term: sim.Term{Delay: time.Minute}}, 137, 10 * time.Second, 2},
		"ignored":  {sim.IgnoringTerm(), 137, 10 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, script(tc.b))
			_, c := h.run("web")
			done := background(func() error { return h.stop(c, 10) })
			h.must(h.clock.WaitPending(h.ctx, tc.timers))
			h.clock.Advance(tc.takes - time.Nanosecond)
			h.running(c)
			h.clock.Advance(time.Nanosecond)
			h.must(<-done)
			h.exited(c, tc.code, "Error")
		})
	}
}

func TestStopAgainWaitsAgainButSignalsOnce(t *testing.T) {
	h := start(t, script(sim.Behaviour{Term: sim.Term{Delay: 8 * time.Second}}))
	_, c := h.run("web")
	ctx, cancel := context.WithCancel(h.ctx)
	first := background(func() error {
		_, err := h.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 5})
		return err
	})
	h.must(h.clock.WaitPending(h.ctx, 2)) // its grace period, and the process's own exit
	h.clock.Advance(4 * time.Second)
	cancel()
	fails(t, <-first, codes.Canceled, "")
	h.idle()
	second := background(func() error { return h.stop(c, 5) })
	h.must(h.clock.WaitPending(h.ctx, 2))
	h.clock.Advance(4*time.Second - time.Nanosecond)
	h.running(c) // the first call's five seconds have passed, the second's have not
	h.clock.Advance(time.Nanosecond)
	h.must(<-second)
	h.exited(c, 0, "Completed") // eight seconds after the first signal
	if n := h.Snapshot().Container("web", "main").Signals; n != 1 {
		t.Errorf("%d stop signals", n)
	}
}

func TestStopSignal_ForgottenAfterRuntimeDeath(t *testing.T) {
	h := start(t, script(sim.IgnoringTerm()))
	_, c := h.run("web")
	first := background(func() error { return h.stop(c, 5) })
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.Down()
	fails(t, <-first, codes.Unavailable, "")
	h.clock.Advance(time.Minute) // no call remains to kill it
	h.must(h.Up())
	h.reconnected()
	h.running(c)
	second := background(func() error { return h.stop(c, 5) })
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.clock.Advance(5 * time.Second)
	h.must(<-second)
	h.exited(c, 137, "Error")
	if n := h.Snapshot().Container("web", "main").Signals; n != 2 {
		t.Errorf("%d stop signals", n)
	}
}

func TestStopWithoutGraceKills(t *testing.T) {
	h := start(t, sim.Options{})
	_, c := h.run("web")
	h.must(h.stop(c, 0))
	h.exited(c, 137, "Error")
	if n := h.Snapshot().Container("web", "main").Signals; n != 0 {
		t.Errorf("%d stop signals", n)
	}
}

func TestRemovalKills(t *testing.T) {
	h := start(t, sim.Options{})
	_, a := h.run("a")
	sbB, _ := h.run("b")
	h.must(h.remove(a))
	h.must(h.removeSandbox(sbB))
	s := h.Snapshot()
	if s.Running() != 0 || len(s.Containers) != 0 || len(s.Sandboxes) != 1 {
		t.Errorf("left over: %d running of %d, %d sandboxes", s.Running(), len(s.Containers), len(s.Sandboxes))
	}
	h.broken("removed-running", "removed-running", "removed-running")
}

func TestExec(t *testing.T) {
	boom := sim.ExecResult{Stdout: "out", Stderr: "err", Code: 4, Takes: 3 * time.Second}
	h := start(t, sim.Options{Script: sim.Script{
		Exec: func(_ context.Context, target sim.Target, command []string) sim.ExecResult {
			if target.Container != "main" || target.PodName != "web" || command[0] != "probe" {
				return sim.ExecResult{Code: 99}
			}
			return boom
		},
	}})
	_, c := h.run("web")
	exec := func(timeout int64) (*runtimeapi.ExecSyncResponse, error) {
		return h.rt.ExecSync(h.ctx, &runtimeapi.ExecSyncRequest{ContainerId: c, Cmd: []string{"probe"}, Timeout: timeout})
	}
	type answer struct {
		resp *runtimeapi.ExecSyncResponse
		err  error
	}
	during := func(timeout int64, then func()) answer {
		done := make(chan answer, 1)
		go func() {
			resp, err := exec(timeout)
			done <- answer{resp, err}
		}()
		h.must(h.clock.WaitPending(h.ctx, 1))
		then()
		return <-done
	}
	a := during(10, func() { h.clock.Advance(3 * time.Second) })
	h.must(a.err)
	if string(a.resp.Stdout) != "out" || string(a.resp.Stderr) != "err" || a.resp.ExitCode != 4 {
		t.Errorf("answer %v", a.resp)
	}
	a = during(1, func() { h.clock.Advance(time.Second) })
	fails(t, a.err, codes.DeadlineExceeded, "timeout 1s exceeded")
	a = during(0, func() { h.must(h.Exit("uid-web", "main", 1, "")) })
	h.must(a.err)
	if a.resp.ExitCode != 137 {
		t.Errorf("a command outlived its container with %d", a.resp.ExitCode)
	}
	_, err := exec(0)
	fails(t, err, codes.Unknown, "container is in CONTAINER_EXITED state")
}

func TestStats(t *testing.T) {
	h := start(t, script(sim.Behaviour{Memory: 7 << 20}))
	_, c := h.run("web")
	h.clock.Advance(10 * time.Second)
	all, err := h.rt.ListContainerStats(h.ctx, &runtimeapi.ListContainerStatsRequest{})
	h.must(err)
	if len(all.Stats) != 1 {
		t.Fatalf("stats of %d containers", len(all.Stats))
	}
	cpu, memory := all.Stats[0].Cpu, all.Stats[0].Memory
	if cpu.UsageCoreNanoSeconds.Value != uint64(100*time.Millisecond) || cpu.UsageNanoCores.Value != 10_000_000 ||
		memory.WorkingSetBytes.Value != 7<<20 {
		t.Errorf("stats %v", all)
	}
	h.must(h.stop(c, 1))
	all, err = h.rt.ListContainerStats(h.ctx, &runtimeapi.ListContainerStatsRequest{})
	h.must(err)
	if len(all.Stats) != 0 {
		t.Errorf("stats of a container that does not run: %v", all)
	}
}
