//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// foreigners are sandboxes and containers of other clients.
type foreigners struct {
	s           *stack.Stack
	sandboxes   map[string]runtimeapi.PodSandboxState // by ID
	containers  map[string]runtimeapi.ContainerState
	inNamespace string // a container in a namespace beside the CRI's
}

const otherNamespace = "others"

// newForeigners makes pods by CRI without a kubelet's labels, one that lives and two that are dead, and a container
// beside the CRI.
func newForeigners(t *testing.T, s *stack.Stack) *foreigners {
	t.Helper()
	f := &foreigners{
		s: s, sandboxes: map[string]runtimeapi.PodSandboxState{}, containers: map[string]runtimeapi.ContainerState{},
		inNamespace: "other" + strings.ReplaceAll(string(s.Kind()), ".", "-"),
	}
	_, err := s.Pull(t.Context(), s.HelloImage())
	must(t, err)
	for _, name := range []string{"empty", "dead", "alive"} {
		podSandbox, container := f.run(t, "foreign-"+name)
		f.sandboxes[podSandbox], f.containers[container] = runtimeapi.PodSandboxState_SANDBOX_READY,
			runtimeapi.ContainerState_CONTAINER_RUNNING
		if name == "alive" {
			continue
		}
		_, err := s.CRI().StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: podSandbox})
		must(t, err)
		f.sandboxes[podSandbox], f.containers[container] = runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
			runtimeapi.ContainerState_CONTAINER_EXITED
		if name == "empty" {
			_, err := s.CRI().RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: container})
			must(t, err)
			delete(f.containers, container)
		}
	}
	f.ctr(t, "images", "pull", "--plain-http", s.HelloImage())
	f.ctr(t, "run", "--detach", "--cgroup", "/k8s.io/"+f.inNamespace, s.HelloImage(), f.inNamespace, "/hello", "sleep")
	return f
}

func (f *foreigners) ctr(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.s.Ctr(t.Context(), otherNamespace, args...)
	must(t, err)
	return out
}

// run makes a sandbox with a container, with no labels at all.
func (f *foreigners) run(t *testing.T, name string) (sandbox, container string) {
	t.Helper()
	ctx, cri := t.Context(), f.s.CRI()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
	podSandbox, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	must(t, err)
	made, err := cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: podSandbox.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: f.s.HelloImage()},
			Args: []string{"sleep"}, Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	must(t, err)
	_, err = cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId})
	must(t, err)
	return podSandbox.PodSandboxId, made.ContainerId
}

// check sees that all is as it was.
func (f *foreigners) check(t *testing.T) {
	t.Helper()
	podSandboxes, err := f.s.Sandboxes(t.Context())
	must(t, err)
	states := map[string]fmt.Stringer{}
	for _, b := range podSandboxes {
		states[b.Id] = b.State
	}
	containers, err := f.s.Containers(t.Context())
	must(t, err)
	for _, c := range containers {
		states[c.Id] = c.State
	}
	for id, want := range f.sandboxes {
		if states[id] != want {
			t.Errorf("somebody else's sandbox is %v, want %v", states[id], want)
		}
	}
	for id, want := range f.containers {
		if states[id] != want {
			t.Errorf("somebody else's container is %v, want %v", states[id], want)
		}
	}
	if list := f.ctr(t, "tasks", "list"); !strings.Contains(list, f.inNamespace) || !strings.Contains(list, "RUNNING") {
		t.Errorf("in somebody else's namespace there is: %s", list)
	}
}

func (f *foreigners) remove(t *testing.T) {
	t.Helper()
	for id := range f.sandboxes {
		must(t, f.s.RemoveSandbox(t.Context(), id))
	}
	f.ctr(t, "tasks", "delete", "--force", f.inNamespace)
	f.ctr(t, "containers", "delete", f.inNamespace)
}
