//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rebooted are the pods of TestAReboot, by name.
var rebooted = map[string]string{
	"web": `
terminationGracePeriodSeconds: 5
initContainers:
- {name: init, image: HELLO, args: [append, /data/inits, ran], DATA}
- {name: side, image: HELLO, restartPolicy: Always, args: [sleep]}
containers:
- {name: c, image: HELLO}
- {name: keeps, image: HELLO, args: [append, /kept/file, begun, '--', sleep], volumeMounts: [{name: kept, mountPath: /kept}]}
volumes: [{name: kept, emptyDir: {}}, {name: data, hostPath: {path: DIR}}]`,
	"job": `
restartPolicy: OnFailure
terminationGracePeriodSeconds: 5
containers: [{name: c, image: HELLO, args: [append, /data/job, ran, '--', sleep], DATA}]
volumes: [{name: data, hostPath: {path: DIR}}]`,
	"once": `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [append, /data/once, ran, '--', sleep], DATA}]
volumes: [{name: data, hostPath: {path: DIR}}]`,
	"done": `
restartPolicy: OnFailure
containers: [{name: c, image: HELLO, args: [append, /data/done, ran], DATA}]
volumes: [{name: data, hostPath: {path: DIR}}]`,
	"unwanted": `
containers: [{name: c, image: HELLO, args: [sleep]}]
volumes: [{name: kept, emptyDir: {}}]`,
}

// A machine starts after a power loss: pods run again in new sandboxes, finished pods stay finished, and undesired ones are
// cleaned up.
func TestAReboot(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		w := &world{s: s, a: agentWith(t, s, quick), dir: t.TempDir()}
		for name, spec := range rebooted {
			spec = strings.NewReplacer("DATA", "volumeMounts: [{name: data, mountPath: /data}]", "DIR", w.dir).Replace(spec)
			must(t, w.a.Write(name+".yaml", manifest(s, name, spec)))
		}
		for _, name := range []string{"web", "job", "once", "unwanted"} {
			awaitPod(t, w.a, name, ready)
		}
		awaitOver(t, w.a, "done", corev1.PodSucceeded)
		awaitFile(t, w.file("inits"), "ran\n")
		for _, name := range []string{"job", "once"} {
			awaitFile(t, w.file(name), "ran\n")
		}
		before := map[string]*runtimeapi.Container{}
		for _, name := range []string{"web", "job", "once", "done"} {
			before[name] = containersOf(t, s, name, "c")[0]
		}
		kept := filepath.Join(w.a.RootDir, "pods", before["web"].Labels[stack.UIDLabel],
			"volumes/kubernetes.io~empty-dir/kept/file")
		awaitFile(t, kept, "begun\n")

		must(t, s.Reboot())
		must(t, w.a.Remove("unwanted.yaml"))
		must(t, w.a.Start())
		unhealthy(t, w.a, "[-]runtime failed") // as at a boot, the agent is there first
		must(t, s.StartRuntime())

		pod := w.again(t, "web", before["web"])
		for _, name := range []string{"side", "keeps"} {
			if c := statusOf(pod, name); c.RestartCount != 1 {
				t.Errorf("container %s: %+v", name, c)
			}
		}
		if got := greeting(t, &stack.Pod{IP: pod.Status.PodIP}); got != "Hello from "+onNode("web")+": /x\n" {
			t.Errorf("the pod answers %q", got)
		}
		awaitFile(t, w.file("inits"), "ran\nran\n")
		awaitFile(t, kept, "begun\nbegun\n") // a volume on disk is the pod's as long as the pod is
		w.again(t, "job", before["job"])
		awaitFile(t, w.file("job"), "ran\nran\n")
		w.notAgain(t, before)
		forgotten(t, w.a, "unwanted")
		settled(t, w.a)
		awaitLeases(t, s, 2) // the addresses of the dead sandboxes were released
		for name := range rebooted {
			if name != "unwanted" {
				must(t, w.a.Remove(name+".yaml"))
			}
		}
		cleared(t, s, w.a)
	})
}

// again waits until a pod runs in a new sandbox, and compares its container c with the one from before.
func (w *world) again(t *testing.T, name string, before *runtimeapi.Container) *corev1.Pod {
	t.Helper()
	pod := awaitPod(t, w.a, name, func(p *corev1.Pod) error {
		if c := statusOf(p, "c"); strings.HasSuffix(c.ContainerID, before.Id) || p.Status.PodIP == "" {
			return fmt.Errorf("status: %+v", p.Status)
		}
		return ready(p)
	})
	after := up(t, w.s, name, "c")
	if after.Metadata.Attempt != 1 || statusOf(pod, "c").RestartCount != 1 || after.PodSandboxId == before.PodSandboxId {
		t.Errorf("pod %s: attempt %d in sandbox %s, before in %s", name, after.Metadata.Attempt, after.PodSandboxId,
			before.PodSandboxId)
	}
	if end := statusOf(pod, "c").LastTerminationState.Terminated; end == nil || end.ExitCode == 0 {
		t.Errorf("pod %s: its container had no end: %+v", name, statusOf(pod, "c"))
	}
	uid := before.Labels[stack.UIDLabel]
	podSandboxes, err := w.s.SandboxesOf(t.Context(), uid)
	must(t, err)
	ready := 0
	for _, b := range podSandboxes {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
		if (b.Id == after.PodSandboxId) != (b.Metadata.Attempt == 1) {
			t.Errorf("pod %s: sandbox of attempt %d: %+v", name, b.Metadata.Attempt, b)
		}
	}
	if ready != 1 || string(pod.UID) != uid {
		t.Errorf("pod %s, %s before, is %s and has %d sandboxes that are ready", name, uid, pod.UID, ready)
	}
	return pod
}

// notAgain checks that finished containers are not run again, and that run-once ones have failed.
func (w *world) notAgain(t *testing.T, before map[string]*runtimeapi.Container) {
	t.Helper()
	awaitOver(t, w.a, "done", corev1.PodSucceeded)
	pod := awaitOver(t, w.a, "once", corev1.PodFailed)
	if end := statusOf(pod, "c").State.Terminated; end == nil || end.ExitCode == 0 {
		t.Errorf("status: %+v", pod.Status)
	}
	for _, name := range []string{"done", "once"} {
		if all := containersOf(t, w.s, name); len(all) > 1 || len(all) == 1 && all[0].Id != before[name].Id {
			t.Errorf("pod %s has the containers %v", name, all)
		}
		podSandboxes, err := w.s.SandboxesOf(t.Context(), before[name].Labels[stack.UIDLabel])
		must(t, err)
		if len(podSandboxes) > 1 {
			t.Errorf("pod %s has got another sandbox: %v", name, podSandboxes)
		}
		if got, err := os.ReadFile(w.file(name)); err != nil || string(got) != "ran\n" {
			t.Errorf("pod %s wrote %q, %v", name, got, err)
		}
	}
}

// awaitLeases waits until so many addresses are given out.
func awaitLeases(t *testing.T, s *stack.Stack, want int) {
	t.Helper()
	await(t, func() error {
		left, err := s.Leftovers()
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(l string) bool { return !strings.HasPrefix(l, "lease ") })
		if len(left) != want {
			return fmt.Errorf("%d addresses are given out, want %d: %v", len(left), want, left)
		}
		return nil
	})
}
