package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

// simulated is a runtime, and a client of it.
func simulated(t *testing.T, o sim.Options) (*sim.Runtime, *cri.Client) {
	t.Helper()
	o.Socket = filepath.Join(shortDir(t), "s")
	r, err := sim.Start(o)
	must(t, err)
	t.Cleanup(r.Close)
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: r.Endpoint()})
	must(t, err)
	t.Cleanup(func() { must(t, client.Close()) })
	return r, client
}

// runPod makes a pod with running containers, and one that has ended.
func runPod(t *testing.T, client *cri.Client, name string, containers ...string) {
	t.Helper()
	ctx := t.Context()
	sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"}}
	id, err := client.RunPodSandbox(ctx, sandbox, "")
	must(t, err)
	_, err = client.PullImage(ctx, &runtimeapi.ImageSpec{Image: "app"}, nil, sandbox)
	must(t, err)
	for _, c := range append(containers, "ended") {
		one, err := client.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: c}, Image: &runtimeapi.ImageSpec{Image: "app"},
			Annotations: map[string]string{"io.kubernetes.pod.terminationGracePeriod": "3"},
		}, sandbox)
		must(t, err)
		must(t, client.StartContainer(ctx, one))
		if c == "ended" {
			must(t, client.StopContainer(ctx, one, 0))
		}
	}
}

func TestAllPods_StoppedWithGraceAndRemoved(t *testing.T) {
	runtime, client := simulated(t, sim.Options{})
	runPod(t, client, "a", "one", "two")
	runPod(t, client, "b", "three")
	var stopped []string // under the runtime's lock
	runtime.Inject(sim.Fault{Call: "StopContainer", Kind: sim.Error, Match: func(target sim.Target, request any) bool {
		stopped = append(stopped, fmt.Sprint(target.Container, request.(*runtimeapi.StopContainerRequest).Timeout))
		return false
	}})
	must(t, removePods(client))
	if now := runtime.Snapshot(); len(now.Sandboxes)+len(now.Containers) > 0 {
		t.Errorf("left: %+v %+v", now.Sandboxes, now.Containers)
	}
	slices.Sort(stopped)
	if want := []string{"one3", "three3", "two3"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %q, want %q", stopped, want)
	}
	must(t, removePods(client))
}

func TestUnremovablePod_BlocksNoOther(t *testing.T) {
	runtime, client := simulated(t, sim.Options{})
	runPod(t, client, "a", "one")
	runPod(t, client, "b", "two")
	runtime.Inject(sim.Fault{Call: "StopPodSandbox", Pod: "a", Times: -1, Kind: sim.Error})
	runtime.Inject(sim.Fault{Call: "RemovePodSandbox", Pod: "a", Times: -1, Kind: sim.Error})
	if err := removePods(client); err == nil {
		t.Error("that is no error")
	}
	if now := runtime.Snapshot(); len(now.Sandboxes) != 1 || now.Sandboxes[0].Name != "a" {
		t.Errorf("left: %+v", now.Sandboxes)
	}
}

func TestRemovePods_WithoutARuntime(t *testing.T) {
	runtime, client := simulated(t, sim.Options{})
	runtime.Down()
	must(t, removePods(client))
}

func TestGraceIsThePodsAndShort(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "3": 3 * time.Second, "5": longestGrace, "3600": longestGrace, "": longestGrace, "x": longestGrace,
		"99999999999": longestGrace,
	} {
		if got := grace(map[string]string{"io.kubernetes.pod.terminationGracePeriod": text}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestTheRuntimeIsAwaited(t *testing.T) {
	runtime, client := simulated(t, sim.Options{})
	runtime.SetNetworkReady(false, "no configuration yet")
	d := &supervisedProgram{}
	d.ended, d.note = context.WithCancelCause(t.Context())
	heard := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- awaitRuntime(t.Context(), client, d, func(what string) {
			select {
			case heard <- what:
			default:
			}
		})
	}()
	if what := <-heard; !strings.HasSuffix(what, "no configuration yet") {
		t.Errorf("it waits for %q", what)
	}
	runtime.SetNetworkReady(true, "")
	must(t, <-ended)

	runtime.SetRuntimeReady(false, "starting")
	go func() { ended <- awaitRuntime(t.Context(), client, d, func(string) {}) }()
	d.note(fmt.Errorf("containerd has ended"))
	if err := <-ended; err == nil || err.Error() != "containerd has ended" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := awaitRuntime(ctx, client, &supervisedProgram{ended: t.Context()}, func(string) {}); err == nil {
		t.Error("it is ready after the end")
	}
}
