package work

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri/sim"
)

// A sandbox is created with the handler of the pod's RuntimeClass. An unread class is awaited, and a failure is reported by name.
// An existing sandbox keeps its handler.
func TestASandboxGetsTheHandlerOfItsClass(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Handlers: []*runtimeapi.RuntimeHandler{{Name: ""}, {Name: "second"}}})
	h.Objects = objectset.NewBoard(false)
	pod := testPod()
	pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	try := func(attempt uint32, want, why string) {
		t.Helper()
		done := of[SandboxStarted](t, h, StartSandbox{Pod: pod, Attempt: attempt})
		if (done.Fact != nil) != (why == "") || done.Fact != nil && done.Fact.Handler != want ||
			!strings.Contains(done.Reason.Message, why) {
			t.Errorf("attempt %d: %+v, %v", attempt, done.Fact, done.Reason)
		}
	}
	try(0, "", "")
	pod.Spec.RuntimeClassName = new("class")
	h.Objects.FailRuntimeClasses(errors.New("the server is away"))
	over := make(chan struct{})
	go func() { // while the sandbox waits for it
		defer close(over)
		h.Objects.PutRuntimeClasses(map[string]string{"class": "second"})
	}()
	try(1, "second", "")
	<-over
	h.Objects.PutRuntimeClasses(nil)
	try(2, "", `runtimeclass.node.k8s.io "class" not found`)
	h.Objects.PutRuntimeClasses(map[string]string{"class": "other"})
	try(2, "", `no runtime for "other" is configured`)
	if n := len(runtime.Snapshot().Sandboxes); n != 2 {
		t.Errorf("%d sandboxes", n)
	}
}

// The sandbox carries the pod's start time, beside the author's annotations.
func TestASandboxCarriesTheStartTime(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{})
	start := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	for attempt, notes := range []map[string]string{nil, {"note": "kept"}} {
		pod := testPod()
		pod.Annotations = notes
		done := of[SandboxStarted](t, h, StartSandbox{Pod: pod, Attempt: uint32(attempt), Started: start})
		if done.Fact == nil || !done.Fact.PodStarted.Equal(start) {
			t.Fatalf("%+v, %v", done.Fact, done.Reason)
		}
		status, err := h.CRI.PodSandboxStatus(t.Context(), done.Fact.ID, false)
		if err != nil || status.GetStatus().GetAnnotations()["note"] != notes["note"] || len(pod.Annotations) != len(notes) {
			t.Errorf("annotations %v, the pod's %v, %v", status.GetStatus().GetAnnotations(), pod.Annotations, err)
		}
	}
}

// A name that the runtime keeps for an unlisted sandbox is reported, so that another attempt can be created.
func TestSandboxName_ReservedByInterruptedCall(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{})
	pod := testPod()
	config, err := h.SandboxConfig(pod, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.Inject(sim.Fault{Call: "RunPodSandbox", Kind: sim.Delay, Delay: time.Hour})
	ctx, interrupt := context.WithCancel(t.Context())
	interrupted := make(chan error, 1)
	go func() {
		_, err := h.CRI.RunPodSandbox(ctx, config, "")
		interrupted <- err
	}()
	for runtime.Snapshot().Names == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := of[SandboxStarted](t, h, StartSandbox{Pod: pod}); got.Fact != nil || !got.Reserved || got.Taken {
		t.Errorf("the same attempt: %+v", got)
	}
	if got := of[SandboxStarted](t, h, StartSandbox{Pod: pod, Attempt: 1}); got.Fact == nil || got.Reserved {
		t.Errorf("the next attempt: %+v", got)
	}
	interrupt()
	if err := <-interrupted; err == nil {
		t.Error("an interrupted call returned no error")
	}
}
