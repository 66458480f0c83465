package ender

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

// endingPod is a running pod with the sidecars s1 and s2 and the main containers m1 and m2; all but m1 have a pre-stop hook. m1
// and m2 ignore their signal.
type endingPod struct {
	stopper
	runtime *sim.Runtime
	mu      sync.Mutex
	hooks   []string // the containers of the hooks that ran
}

func newEnding(t *testing.T) *endingPod {
	e := &endingPod{}
	h, runtime := hosttest.Simulated(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{
		ByContainer: map[string]sim.Sequence{"m1": {sim.IgnoringTerm()}, "m2": {sim.IgnoringTerm()}},
		Exec: func(_ context.Context, target sim.Target, _ []string) sim.ExecResult {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.hooks = append(e.hooks, target.Container)
			return sim.ExecResult{}
		},
	}})
	container := func(name string, hook bool) v1.Container {
		c := v1.Container{Name: name}
		if hook {
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"drain"}}}}
		}
		return c
	}
	e.runtime = runtime
	e.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{container("s1", true), container("s2", true)},
		Containers:     []v1.Container{container("m1", false), container("m2", true)},
	}}
	for i := range e.pod.Spec.InitContainers {
		e.pod.Spec.InitContainers[i].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	e.host, e.until = h, time.Now().Add(time.Hour)
	config, err := h.SandboxConfig(e.pod, 0, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := h.CRI.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m1", "s1", "m2", "s2"} {
		id, err := h.CRI.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "image"},
			Labels: map[string]string{cri.LabelPodName: "web", cri.LabelPodNamespace: "default", cri.LabelPodUID: "u",
				cri.LabelContainerName: name},
		}, config)
		if err == nil {
			err = h.CRI.StartContainer(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// await waits for the beginning of a call for a container.
func (e *endingPod) await(t *testing.T, call, container string) {
	t.Helper()
	if _, err := e.runtime.WaitCall(t.Context(), func(x sim.Entry) bool { return x.Call == call && x.Container == container }); err != nil {
		t.Fatal(err)
	}
}

func (e *endingPod) exit(t *testing.T, container string) {
	t.Helper()
	if err := e.runtime.Exit("u", container, 0, ""); err != nil {
		t.Fatal(err)
	}
}

// inOrder fails the test unless sidecars were stopped after the last stop of each main container, in reverse order, and each hook
// ran once.
func (e *endingPod) inOrder(t *testing.T) {
	t.Helper()
	last := map[string]sim.Entry{}
	for _, c := range e.runtime.Calls("StopContainer") {
		if was, found := last[c.Container]; found && c.Container[0] == 's' {
			t.Errorf("%s was stopped twice, at %d and %d", c.Container, was.Seq, c.Seq)
		}
		last[c.Container] = c
	}
	for _, pair := range [][2]string{{"m1", "s2"}, {"m2", "s2"}, {"s2", "s1"}} {
		if before, after := last[pair[0]], last[pair[1]]; before.EndSeq == 0 || before.EndSeq > after.Seq {
			t.Errorf("%s ended at %d and %s was stopped at %d", pair[0], before.EndSeq, pair[1], after.Seq)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(e.hooks)
	if fmt.Sprint(e.hooks) != "[m2 s1 s2]" {
		t.Errorf("the hooks of %v ran, want those of m2, s1 and s2, once each", e.hooks)
	}
	if n := len(e.runtime.Calls("StopPodSandbox")); n == 0 {
		t.Error("the sandbox was not stopped")
	}
}

func TestStopper_SidecarsAfterMainContainers(t *testing.T) {
	e := newEnding(t)
	done := make(chan error, 1)
	go func() { done <- e.stopAll(t.Context()) }()
	for _, c := range []string{"s1", "s2", "m2"} {
		e.await(t, "ExecSync", c) // the hooks of sidecars run from the beginning
	}
	for _, c := range []string{"m1", "m2"} {
		e.await(t, "StopContainer", c)
		e.exit(t, c)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	e.inOrder(t)
}

// While a main container cannot be stopped no sidecar is, and the hooks do not run again at the next try.
func TestStopper_RuntimeAway(t *testing.T) {
	e := newEnding(t)
	mend := e.runtime.Inject(sim.Fault{Call: "StopContainer", Container: "m1", Kind: sim.Error})
	done := make(chan error, 1)
	go func() { done <- e.stopAll(t.Context()) }()
	e.await(t, "StopContainer", "m2")
	for _, c := range []string{"s1", "s2"} {
		e.await(t, "ExecSync", c)
	}
	e.exit(t, "m2")
	if err := <-done; err == nil {
		t.Fatal("no error although a container could not be stopped")
	}
	for _, c := range e.runtime.Calls("StopContainer") {
		if c.Container[0] == 's' {
			t.Errorf("%s was stopped while m1 runs", c.Container)
		}
	}
	mend()
	e.exit(t, "m1")
	if err := e.stopAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.inOrder(t)
}
