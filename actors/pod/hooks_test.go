package pod

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/host/hosttest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// A sidecar ends by itself while it waits for its turn and its hook still runs.
func TestEndedPod_LeavesNoHook(t *testing.T) {
	h, _ := hosttest.Simulated(t, sim.Options{})
	pod := sidecarPod(v1.RestartPolicyAlways, 1, 1)
	k := supervisortest.New(t, "pods/u1", New(Options{Host: h, Settings: newWorld(pod).set})("u1"))
	at := k.Clock.Now()
	sandbox := messages.SandboxFact{ID: "s0", Ready: true, CreatedAt: at, IPs: []string{"10.88.0.2"}}
	side := messages.ContainerFact{ID: "side", Name: pod.Spec.InitContainers[0].Name, SandboxID: "s0", Image: "image",
		State: messages.ContainerRunning, CreatedAt: at, StartedAt: at}
	main := side
	main.ID, main.Name = "main", pod.Spec.Containers[0].Name
	read := func(containers ...messages.ContainerFact) {
		k.Advance(time.Second)
		k.Send(messages.Runtime, messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: k.Clock.Now(),
			Sandboxes: []messages.SandboxFact{sandbox}, Containers: containers}})
	}
	k.Send(messages.Pods, messages.PodWanted{Pod: pod, Generation: 1, Ending: &messages.Ending{Since: at}})
	read(side, main)
	hook := make(chan context.Context)
	go func() {
		_, _ = h.Ops.Do(t.Context(), host.PreStopKey("u1", "side"), time.Hour, func(ctx context.Context) (any, error) {
			hook <- ctx
			<-ctx.Done()
			return nil, ctx.Err()
		})
	}()
	ctx := <-hook
	side.State, side.FinishedAt = messages.ContainerExited, k.Clock.Now()
	read(side, main)
	if ctx.Err() != nil {
		t.Error("its hook ends while the pod runs")
	}
	main.State, main.FinishedAt = messages.ContainerExited, k.Clock.Now()
	sandbox.Ready = false
	read(side, main)
	k.RunWork()
	if ctx.Err() == nil {
		t.Error("its hook goes on")
	}
}
