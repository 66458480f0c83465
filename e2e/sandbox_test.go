//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A sandbox whose process is killed is recreated with its containers, init containers first.
func TestALostSandboxIsMadeAgain(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		a := s.Agent(t)
		must(t, a.Write("web.yaml", manifest(s, "web", fmt.Sprintf(`
terminationGracePeriodSeconds: 2
initContainers:
- {name: init, image: HELLO, args: [append, /data/inits, ran], volumeMounts: [{name: d, mountPath: /data}]}
containers:
- {name: c, image: HELLO}
volumes: [{name: d, hostPath: {path: %s}}]`, dir))))
		before := up(t, s, "web", "c")
		uid := before.Labels[stack.UIDLabel]
		must(t, s.KillSandboxProcess(t.Context(), uid))
		await(t, func() error {
			c := up(t, s, "web", "c")
			if c.Id == before.Id || c.Metadata.Attempt != 1 || c.PodSandboxId == before.PodSandboxId {
				return fmt.Errorf("container %s, attempt %d, in sandbox %s", c.Id, c.Metadata.Attempt, c.PodSandboxId)
			}
			return nil
		})
		if got, err := os.ReadFile(filepath.Join(dir, "inits")); err != nil || string(got) != "ran\nran\n" {
			t.Errorf("the init container wrote %q, %v", got, err)
		}
		sandboxes, err := s.SandboxesOf(t.Context(), uid)
		must(t, err)
		for _, b := range sandboxes {
			if ready := b.State == runtimeapi.PodSandboxState_SANDBOX_READY; ready != (b.Metadata.Attempt == 1) {
				t.Errorf("sandbox of attempt %d: %v", b.Metadata.Attempt, b.State)
			}
		}
		awaitPod(t, a, "web", func(p *corev1.Pod) error {
			if c := p.Status.ContainerStatuses[0]; c.RestartCount != 1 || !c.Ready || p.Status.PodIP == "" {
				return fmt.Errorf("status %+v", p.Status)
			}
			return nil
		})
		must(t, a.Remove("web.yaml"))
		cleared(t, s, a)
	})
}
