package sim_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestTurmoil runs everything concurrently, in real time: calls and their cancellation, faults, events, deaths of the runtime,
// reboots, exits. Nothing may hang or be left over.
func TestTurmoil(t *testing.T) {
	h := start(t, sim.Options{
		Clock: sim.RealClock{},
		Script: sim.Script{ByContainer: map[string]sim.Sequence{
			"side": {sim.ExitAfter(time.Millisecond, 1)},
			"main": {sim.Behaviour{Term: sim.Term{Delay: time.Millisecond}}},
		}},
	})
	var faults []func()
	for i, f := range []sim.Fault{
		{Call: "StartContainer", Kind: sim.Drop}, {Call: "CreateContainer", Kind: sim.Error},
		{Call: "StopContainer", Kind: sim.CrashAfter}, {Call: "RunPodSandbox", Kind: sim.CrashBefore},
		{Call: sim.ContainerEvent, Kind: sim.Delay, Delay: time.Millisecond},
	} {
		f.Nth, f.Times = 10+i, 2
		faults = append(faults, h.Inject(f))
	}
	faults = append(faults, h.Inject(sim.Fault{Kind: sim.Delay, Delay: 300 * time.Microsecond, Times: -1}))
	var wg sync.WaitGroup
	worker := func(do func(ctx context.Context, i int)) {
		wg.Go(func() {
			for i := range 40 {
				// Short enough to cut calls off in every place. Their failures are expected.
				ctx, cancel := context.WithTimeout(h.ctx, time.Duration(i)*time.Millisecond)
				do(ctx, i)
				cancel()
			}
		})
	}
	for w := range 6 {
		worker(func(ctx context.Context, i int) {
			mine := *h
			mine.ctx = ctx
			name := strconv.Itoa(w) + "-" + strconv.Itoa(i)
			_ = mine.bringUp(name)
			_ = h.Exit("uid-"+name, "main", 137, "")
			_ = mine.bringDown(name)
		})
	}
	worker(func(ctx context.Context, _ int) {
		if s, err := h.rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}); err == nil {
			for err == nil {
				_, err = s.Recv()
			}
		}
	})
	worker(func(ctx context.Context, i int) {
		switch i % 3 {
		case 0:
			h.Down()
			_ = h.Up()
		case 1:
			_ = h.Reboot()
		case 2:
			_ = h.Up() // a fault may have taken the runtime down
		}
		<-ctx.Done()
	})
	wg.Wait()
	for _, cancel := range faults {
		cancel()
	}
	_ = h.Up()
	h.reconnected()
	h.clear()
	h.idle()
	h.consistentAtRest()
}

// consistentAtRest checks that nothing remains when no call is in progress and all sandboxes are removed.
func (h *harness) consistentAtRest() {
	h.t.Helper()
	if n := len(h.Snapshot().Containers); n != 0 {
		h.t.Errorf("%d containers without a sandbox", n)
	}
	// Every name and address is free again.
	for i := range 40 {
		h.sandbox(pod("0-" + strconv.Itoa(i)))
	}
}
