package agent

import (
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

// faulty lists the calls whose failure the day must survive. The calls with the longest waits after a failure are first, so that
// none of them is the last to run.
var faulty = []string{
	"GetContainerEvents", "StopContainer", "RemoveContainer",
	"RunPodSandbox", "PodSandboxStatus", "ListPodSandbox", "StopPodSandbox", "RemovePodSandbox",
	"CreateContainer", "StartContainer", "ContainerStatus", "ListContainers",
	"PullImage", "ImageStatus", "Version", "Status",
}

// TestEveryCallFailsOnce: each call of the CRI fails once in each way: with an error before it does anything, with its
// answer lost after it did all, with no answer ever, with a wrong answer, and with the runtime dying under it. The day
// ends the same, and nothing is started twice.
func TestEveryCallFailsOnce(t *testing.T) {
	t.Parallel()
	want := ""
	if !t.Run("undisturbed", func(t *testing.T) {
		r := newClusterRig(t, scenarioRuntime())
		scenario(r, nil)
		want, _ = settled(r.rig)
	}) {
		return
	}
	kinds := []sim.Kind{sim.Error, sim.Drop, sim.Swallow, sim.Hang, sim.Wrong, sim.CrashBefore, sim.CrashAfter}
	for _, call := range faulty {
		for _, kind := range kinds {
			if call == "GetContainerEvents" && (kind == sim.Wrong || kind == sim.Drop || kind == sim.Swallow ||
				kind == sim.CrashAfter) {
				continue // a stream has no answer to lose or spoil
			}
			if call == "PullImage" && (kind == sim.Hang || kind == sim.Swallow) {
				continue // a pull may take an hour; ending one without progress is the runtime's part
			}
			t.Run(call+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				var flags []string
				if kind == sim.Hang || kind == sim.Swallow { // the others need no deadline, which a busy machine may miss
					flags = []string{"--runtime-request-timeout=5s"}
				}
				r := newClusterRig(t, scenarioRuntime(), flags...)
				r.runtime.Inject(sim.Fault{Call: call, Kind: kind, Times: 1})
				if kind == sim.CrashBefore || kind == sim.CrashAfter {
					stop := r.revive()
					defer stop()
				}
				scenario(r, nil)
				got, _ := settled(r.rig)
				if got != want {
					t.Errorf("it ended with\n%s\ninstead of\n%s", got, want)
				}
				checkViolations(t, r.rig)
			})
		}
	}
}

// TestTheSameDayWithoutEvents: a runtime that has no events is asked every second, with the same outcome.
func TestTheSameDayWithoutEvents(t *testing.T) {
	t.Parallel()
	var outcomes []string
	for _, old := range []bool{false, true} {
		opts := scenarioRuntime()
		opts.Old = old
		r := newClusterRig(t, opts)
		scenario(r, nil)
		got, _ := settled(r.rig)
		outcomes = append(outcomes, got)
		checkViolations(t, r.rig)
	}
	if outcomes[0] != outcomes[1] {
		t.Errorf("with events\n%s\nwithout\n%s", outcomes[0], outcomes[1])
	}
}

// revive brings a runtime that died back, until it is stopped.
func (r *rig) revive() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			ctx, cancel := contextUntil(quit)
			err := r.runtime.WaitFor(ctx, func(s sim.Snapshot) bool { return !s.Up })
			cancel()
			if err != nil {
				return
			}
			if err := r.runtime.Up(); err != nil {
				r.t.Error(err)
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}
