package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type stream = grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]

// listen opens an event stream and waits until the runtime has registered it.
func (h *harness) listen() stream {
	h.t.Helper()
	before := h.Snapshot().EventStreams
	s, err := h.rt.GetContainerEvents(h.ctx, &runtimeapi.GetEventsRequest{}, waitForReady)
	h.must(err)
	h.must(h.WaitFor(h.ctx, func(s sim.Snapshot) bool { return s.EventStreams > before }))
	return s
}

// heard reads the given number of events and checks kind and object of each. It fails on any other event between them, so it
// proves that no other was sent.
func (h *harness) heard(s stream, want ...string) []*runtimeapi.ContainerEventResponse {
	h.t.Helper()
	var events []*runtimeapi.ContainerEventResponse
	for _, w := range want {
		e, err := s.Recv()
		h.must(err)
		if got := fmt.Sprint(e.ContainerEventType, " ", e.ContainerId); got != w {
			h.t.Fatalf("event %s, want %s", got, w)
		}
		events = append(events, e)
	}
	return events
}

func created(id string) string { return "CONTAINER_CREATED_EVENT " + id }
func started(id string) string { return "CONTAINER_STARTED_EVENT " + id }
func stopped(id string) string { return "CONTAINER_STOPPED_EVENT " + id }
func deleted(id string) string { return "CONTAINER_DELETED_EVENT " + id }

func TestEventsOfALife(t *testing.T) {
	h := start(t, sim.Options{})
	s, second := h.listen(), h.listen()
	sb, c := h.run("web")
	h.must(h.stop(c, 1))
	h.must(h.stop(c, 1)) // sends no event
	h.must(h.remove(c))
	h.must(h.stopSandbox(sb))
	h.must(h.removeSandbox(sb))
	all := []string{created(sb), started(sb), created(c), started(c), stopped(c), deleted(c), stopped(sb), deleted(sb)}
	events := h.heard(s, all...)
	h.heard(second, all...)
	running := events[3]
	if running.PodSandboxStatus.Id != sb || len(running.ContainersStatuses) != 1 ||
		running.ContainersStatuses[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING ||
		running.CreatedAt != epoch.UnixNano() {
		t.Errorf("event %v", running)
	}
	if st := events[6].PodSandboxStatus.State; st != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("a stopped sandbox is %s", st)
	}
	if len(events[5].ContainersStatuses) != 0 {
		t.Error("a deleted container has a status")
	}
}

func TestEventsWaitForTheFirstListener(t *testing.T) {
	h := start(t, sim.Options{})
	h.run("early")
	h.clock.Advance(5*time.Minute + time.Nanosecond)
	sb, c := h.run("late")
	s := h.listen()
	h.heard(s, created(sb), started(sb), created(c), started(c))
}

func TestEventsAndTheRuntimesDeath(t *testing.T) {
	h := start(t, script(sim.ExitAfter(time.Minute, 0)))
	_, _ = h.run("a")
	h.Down() // drops the kept events
	h.clock.Advance(time.Minute)
	h.must(h.Up())
	h.reconnected()
	s := h.listen()
	sb := h.sandbox(pod("b"))
	h.heard(s, created(sb), started(sb))
	h.Down()
	_, err := s.Recv()
	fails(t, err, codes.Unavailable, "")
}

func TestLostAndLateEvents(t *testing.T) {
	h := start(t, sim.Options{})
	s := h.listen()
	h.Inject(sim.Fault{Call: sim.ContainerEvent, Container: "main", Nth: 2, Kind: sim.Drop})
	h.Inject(sim.Fault{Call: sim.ContainerEvent, Container: "main", Nth: 3, Kind: sim.Delay, Delay: time.Second})
	sb, c := h.run("web")
	h.must(h.stop(c, 1))
	h.must(h.remove(c))
	h.heard(s, created(sb), started(sb), created(c), deleted(c))
	h.clock.Advance(time.Second)
	h.heard(s, stopped(c))
}

func TestEventsAreNoCalls(t *testing.T) {
	h := start(t, sim.Options{})
	h.Inject(sim.Fault{Kind: sim.Error, Nth: 4})
	h.listen()
	_, c := h.run("web")
	fails(t, h.stop(c, 1), codes.Unknown, "injected fault")
}

func TestFaultsOfTheStreamItself(t *testing.T) {
	h := start(t, sim.Options{})
	h.Inject(sim.Fault{Call: "GetContainerEvents", Kind: sim.Error})
	s, err := h.rt.GetContainerEvents(h.ctx, &runtimeapi.GetEventsRequest{})
	h.must(err)
	_, err = s.Recv()
	fails(t, err, codes.Unknown, "injected fault")
	h.listen()
}
