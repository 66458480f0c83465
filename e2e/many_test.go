//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const sleeper = `
terminationGracePeriodSeconds: 5
containers: [{name: c, image: HELLO, args: [sleep]}]`

// A hundred pods at once all run, and leave nothing when they are gone.
func TestAHundredPodsAtOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("p%02d", i))
			must(t, a.Write(names[i]+".yaml", manifest(s, names[i], sleeper)))
		}
		seen := map[string]bool{}
		for _, c := range running(t, s, len(names)) {
			seen[c.Labels["io.kubernetes.pod.name"]] = true
		}
		for _, name := range names {
			if !seen[onNode(name)] {
				t.Errorf("nothing of pod %s runs", name)
			}
			pod := awaitPod(t, a, name, inPhase(corev1.PodRunning))
			if got := pod.Status.ContainerStatuses[0].RestartCount; got != 0 || pod.Status.PodIP == "" {
				t.Errorf("pod %s: %d restarts, IP %q", name, got, pod.Status.PodIP)
			}
		}
		if got := s.Registry.Pulls("hello"); got != 1 {
			t.Errorf("the image was pulled %d times", got)
		}
		for _, name := range names {
			must(t, a.Remove(name+".yaml"))
		}
		cleared(t, s, a)
	})
}

// The agent may be killed at any moment of a roll-out: the pods come up all the same, and none is disturbed.
func TestTheAgentIsKilledDuringARollOut(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		a := s.Agent(t)
		const pods, kills = 30, 10
		var atKill []*runtimeapi.Container
		for i := range pods {
			name := fmt.Sprintf("p%02d", i)
			must(t, a.Write(name+".yaml", manifest(s, name, sleeper)))
			if i%(pods/kills) != 0 {
				continue
			}
			time.Sleep(time.Duration(random.Int64N(int64(700 * time.Millisecond))))
			now, err := s.CRI().ListContainers(t.Context(), onlyRunning)
			must(t, err)
			must(t, a.Kill9())
			atKill = append(atKill, now.Containers...)
			must(t, a.Start())
		}
		running(t, s, pods)
		left := neverRan(t, s)
		for i := range pods {
			pod := awaitPod(t, a, fmt.Sprintf("p%02d", i), inPhase(corev1.PodRunning))
			if got := pod.Status.ContainerStatuses[0]; got.RestartCount != left[pod.Name] {
				t.Errorf("pod %s shows %d restarts; its last end: %+v", pod.Name, got.RestartCount,
					got.LastTerminationState.Terminated)
			}
		}
		asStarted(t, s, atKill)
		oneEach(t, s, pods, left)
		for i := range pods {
			must(t, a.Remove(fmt.Sprintf("p%02d.yaml", i)))
		}
		nothing(t, s)
		must(t, s.SweepByForce())
		cleared(t, s, a)
	})
}

var onlyRunning = &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
	State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
}}

// neverRan counts, by pod, the containers that are left of starts that were cut off: the runtime cannot remove them, and
// their names are passed over. That a container ran and has ended is an error.
func neverRan(t *testing.T, s *stack.Stack) map[string]int32 {
	t.Helper()
	containers, err := s.Containers(t.Context())
	must(t, err)
	left := map[string]int32{}
	for _, c := range containers {
		if c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		got, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		must(t, err)
		if got.Status.StartedAt != 0 {
			t.Errorf("a container of pod %s ran and has ended: %v", c.Labels["io.kubernetes.pod.name"], got.Status)
		}
		left[c.Labels["io.kubernetes.pod.name"]]++
	}
	return left
}

// oneEach checks that each pod has one ready sandbox and one running container, the first with a free name.
func oneEach(t *testing.T, s *stack.Stack, pods int, left map[string]int32) {
	t.Helper()
	containers, err := s.Containers(t.Context())
	must(t, err)
	running := map[string]int{}
	for _, c := range containers {
		pod := c.Labels["io.kubernetes.pod.name"]
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		running[pod]++
		if int32(c.Metadata.Attempt) != left[pod] {
			t.Errorf("pod %s has attempt %d of its container, %v", pod, c.Metadata.Attempt, c.State)
		}
	}
	sandboxes, err := s.Sandboxes(t.Context())
	must(t, err)
	ready := map[string]int{}
	for _, b := range sandboxes {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[b.Metadata.Name]++
		}
	}
	if len(running) != pods || len(ready) != pods {
		t.Errorf("%d pods have a container that runs, %d a sandbox, want %d", len(running), len(ready), pods)
	}
	for pod, n := range running {
		if n != 1 || ready[pod] != 1 {
			t.Errorf("pod %s has %d containers that run and %d sandboxes", pod, n, ready[pod])
		}
	}
}
