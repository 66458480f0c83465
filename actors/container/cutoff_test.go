package container

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// sandbox creates the pod's sandbox for an attempt.
func sandbox(t *testing.T, h *host.Host, pod *v1.Pod, attempt uint32) messages.Sandbox {
	t.Helper()
	config, err := h.SandboxConfig(pod, attempt, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CRI.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	return messages.Sandbox{ID: id, Attempt: attempt, IPs: []string{"10.0.0.1"}}
}

// The remainder of an interrupted start is replaced by another container of the same attempt, even if it is in an earlier
// sandbox. A container that failed to start by its own fault is kept.
func TestInterruptedStart_RemainsAreReplaced(t *testing.T) {
	for _, c := range []struct {
		name, failure string
		otherSandbox  bool
		again         bool
	}{
		{"cut off", "failed to create containerd task: context canceled", false, true},
		{"cut off, and the sandbox lost", "failed to create containerd task: context canceled", true, true},
		{"cut off at the shim", "failed to create containerd task: failed to start shim: start failed: : signal: killed: unknown",
			false, true},
		{"overdue", "failed to create containerd task: context deadline exceeded", false, true},
		{"overdue in the shim", "failed to create containerd task: failed to get task pid: context deadline exceeded: unknown", false, true},
		{"failed", "exec: no such file", false, false},
		{"failed as the text of its command", `exec: "context deadline exceeded": executable file not found in $PATH: unknown`, false, false},
		{"failed as another text", `exec: "failed to start shim: signal: killed": executable file not found in $PATH: unknown`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var starts atomic.Int32
			h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
				Func: func(sim.Target) (sim.Behaviour, bool) {
					if starts.Add(1) == 1 {
						return sim.Behaviour{StartError: c.failure}, true
					}
					return sim.RunForever(), true
				},
			}})
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
			}
			w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
				Sandbox: sandbox(t, h, pod, 0)}
			first := start(t.Context(), h, w)
			if first.reason == nil || first.fact == nil || facts.CutOff(*first.fact) != c.again {
				t.Fatalf("the start that fails: %+v", first)
			}
			if c.otherSandbox {
				if err := h.CRI.StopPodSandbox(t.Context(), w.Sandbox.ID); err != nil {
					t.Fatal(err)
				}
				w.Sandbox = sandbox(t, h, pod, 1)
			}
			second := start(t.Context(), h, w)
			if ran := second.fact != nil && second.fact.State == messages.ContainerRunning &&
				second.fact.Attempt == 0; ran != c.again {
				t.Errorf("started again: %+v", second)
			}
			if n := len(runtime.Snapshot().Containers); n != 1 {
				t.Errorf("%d containers", n)
			}
		})
	}
}

// The removal of an interrupted start takes the place of the start: removals that hang do not hold it up.
func TestStart_CutOffWaitsForNoRemoval(t *testing.T) {
	var starts atomic.Int32
	h, simulated := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Func: func(sim.Target) (sim.Behaviour, bool) {
			if starts.Add(1) == 1 {
				return sim.Behaviour{StartError: "failed to create containerd task: context canceled"}, true
			}
			return sim.RunForever(), true
		},
	}})
	const dead = "dead"
	var hung atomic.Int32
	release := simulated.Inject(sim.Fault{Call: "RemoveContainer", Kind: sim.Hang, Times: -1,
		Match: func(_ sim.Target, request any) bool {
			if r, ok := request.(*runtimeapi.RemoveContainerRequest); ok && r.ContainerId == dead {
				hung.Add(1)
				return true
			}
			return false
		}})
	var removals sync.WaitGroup
	defer removals.Wait()
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for range 3*runtime.NumCPU() + 4 { // more than there are places
		removals.Go(func() { _ = h.CRI.RemoveContainer(ctx, dead) })
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
	w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
	if first := start(ctx, h, w); first.reason == nil {
		t.Fatalf("the start that fails: %+v", first)
	}
	for hung.Load() < int32(max(3*runtime.NumCPU(), 4)) {
		runtime.Gosched()
	}
	if got := start(ctx, h, w); got.fact == nil || got.fact.State != messages.ContainerRunning {
		t.Errorf("got %+v beside removals that hang, want a running container", got)
	}
}

// An adopted container in state created may turn out to be the remainder of an interrupted start. That is a failed start, not
// an end.
func TestAdoption_InterruptedStartIsNoEnd(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		Default: sim.Sequence{{StartError: "failed to create containerd task: context canceled"}},
	}})
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
	w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
	first := start(t.Context(), h, w)
	if first.fact == nil {
		t.Fatalf("%+v", first)
	}
	w.Adopt = &messages.ContainerFact{ID: first.fact.ID, State: messages.ContainerCreated}
	if got := start(t.Context(), h, w); got.reason == nil || got.fact == nil || !facts.CutOff(*got.fact) {
		t.Errorf("got %+v", got)
	}
}

// A container that the runtime cannot remove keeps its name. The report includes that, and that nothing was started.
func TestANameThatCannotBeHadIsSaid(t *testing.T) {
	for code, taken := range map[codes.Code]bool{codes.FailedPrecondition: true, codes.Unknown: false} {
		h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
			Default: sim.Sequence{{StartError: "failed to create containerd task: context canceled"}},
		}})
		pod := podOf(v1.Container{Name: "c", Image: "image"})
		w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image",
			Sandbox: sandbox(t, h, pod, 0)}
		if first := start(t.Context(), h, w); first.reason == nil {
			t.Fatalf("%+v", first)
		}
		runtime.Inject(sim.Fault{Call: "RemoveContainer", Times: -1, Kind: sim.Error,
			Err: status.Error(code, "cannot delete running task")})
		got := start(t.Context(), h, w)
		if got.nameTaken != taken || got.reason == nil || !strings.Contains(got.reason.Message, "cannot delete running task") ||
			got.fact != nil {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

// A name that the runtime keeps for a container which it does not list is reported, so that another attempt can be made.
func TestANameIsReservedForAnInterruptedCall(t *testing.T) {
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}})
	pod := podOf(v1.Container{Name: "c", Image: "image"})
	w := messages.RunContainer{Pod: pod, Container: &pod.Spec.Containers[0], ImageRef: "image", Sandbox: sandbox(t, h, pod, 0)}
	runtime.Inject(sim.Fault{Call: "CreateContainer", Kind: sim.Delay, Delay: time.Hour})
	before := runtime.Snapshot().Names
	interrupted := make(chan startResult, 1)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { interrupted <- makeAndStart(ctx, h, w) }()
	for runtime.Snapshot().Names == before {
		time.Sleep(time.Millisecond)
	}
	if got := start(t.Context(), h, w); got.reason == nil || !got.reserved || got.nameTaken {
		t.Errorf("got %+v", got)
	}
	interrupt()
	<-interrupted
}
