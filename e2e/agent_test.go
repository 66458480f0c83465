//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// helloManifest is a pod that serves, and knows nothing special.
func helloManifest(name, image string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: hello
    image: %s
`, name, image)
}

// running waits until n containers of the label's pods run, and gives them.
func running(t *testing.T, s *stack.Stack, n int) []*runtimeapi.Container {
	t.Helper()
	var last []*runtimeapi.Container
	var looks pause
	for p := (progress{}); p.goesOn(max(n-len(last), len(last)-n)); looks.sleep() {
		resp, err := s.CRI().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil {
			continue // the runtime may be away: some tests kill it
		}
		if last = resp.Containers; len(last) == n {
			return last
		}
	}
	t.Fatalf("%d containers run, want %d:\n%s", len(last), n, whatIsThere(t, s))
	return nil
}

// whatIsThere returns a line per pod with its objects in the runtime.
func whatIsThere(t *testing.T, s *stack.Stack) string {
	t.Helper()
	lines := map[string]string{}
	sandboxes, err := s.CRI().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	must(t, err)
	for _, b := range sandboxes.Items {
		lines[b.Metadata.Name] += fmt.Sprintf("; sandbox %.8s %d %s", b.Id, b.Metadata.Attempt, b.State)
	}
	containers, err := s.CRI().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	must(t, err)
	for _, c := range containers.Containers {
		lines[c.Labels["io.kubernetes.pod.name"]] += fmt.Sprintf("; container %.8s %d %s in %.8s", c.Id, c.Metadata.Attempt,
			c.State, c.PodSandboxId)
	}
	var out strings.Builder
	for _, pod := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&out, "  %s%s\n", pod, lines[pod])
	}
	return out.String()
}

// nothing waits until the runtime knows no container and no sandbox.
func nothing(t *testing.T, s *stack.Stack) {
	t.Helper()
	left, n := "", math.MaxInt
	var looks pause
	for p := (progress{}); p.goesOn(n); looks.sleep() {
		containers, err := s.CRI().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			continue
		}
		sandboxes, err := s.CRI().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			continue
		}
		if n = len(containers.Containers) + len(sandboxes.Items); n == 0 {
			return
		}
		left = fmt.Sprint(containers.Containers, sandboxes.Items)
	}
	t.Fatalf("left: %s", left)
}

func ids(containers []*runtimeapi.Container) string {
	var out []string
	for _, c := range containers {
		out = append(out, c.Id)
	}
	return strings.Join(out, " ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAStaticPodLivesAndDies: the main job, and that the agent's death changes nothing of it.
func TestAStaticPodLivesAndDies(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("web.yaml", helloManifest("web", s.HelloImage())))
		before := running(t, s, 1)
		if name := before[0].Labels["io.kubernetes.pod.name"]; name != "web-node0" {
			t.Errorf("the pod is named %q", name)
		}
		must(t, a.Kill9())
		must(t, a.Start())
		time.Sleep(3 * time.Second) // long enough for whatever an agent may do wrong when it starts
		if after := running(t, s, 1); ids(after) != ids(before) {
			t.Errorf("container %s became %s", ids(before), ids(after))
		}
		must(t, a.Remove("web.yaml")) // a recreated pod starts over, and counts on
		must(t, a.Write("web.yaml", helloManifest("web", s.HelloImage())))
		awaitPod(t, a, "web", func(p *corev1.Pod) error {
			if c := p.Status.ContainerStatuses; len(c) != 1 || c[0].RestartCount != 1 || c[0].State.Running == nil {
				return fmt.Errorf("its containers are %+v", c)
			}
			return nil
		})
		must(t, a.Remove("web.yaml"))
		cleared(t, s, a) // the agent is done too: objects that end in between stay until it is back
		if code, err := a.Term(); err != nil || code != 0 {
			t.Errorf("the agent ended with code %d, %v", code, err)
		}
	})
}
