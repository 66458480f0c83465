//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// waitLimit bounds every wait; it is reached only when something is broken, however slow the machine.
const waitLimit = 8 * time.Minute

// await waits until look, called again and again, has nothing to complain about.
func await(t *testing.T, look func() error) {
	t.Helper()
	var last error
	var looks pause
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); looks.sleep() {
		if last = look(); last == nil {
			return
		}
	}
	t.Fatalf("it stays so: %v", last)
}

// pause spaces the looks at an awaited state. The pauses grow from 20 ms to 100 ms, since each look takes processor time
// from the tested agent. The zero value is ready.
type pause struct{ last time.Duration }

func (p *pause) sleep() {
	p.last = min(max(p.last*5/4, 20*time.Millisecond), 100*time.Millisecond)
	time.Sleep(p.last)
}

// progress tracks a decreasing number: it may take any time, as on a slow machine, but must not stand still. The zero value is
// ready.
type progress struct {
	least    int
	deadline time.Time
}

// goesOn reports that the number is lower than ever, or that the limit is not reached.
func (p *progress) goesOn(left int) bool {
	if p.deadline.IsZero() || left < p.least {
		p.least, p.deadline = left, time.Now().Add(waitLimit)
	}
	return time.Now().Before(p.deadline)
}

// agentWith starts an agent with a changed configuration.
func agentWith(t *testing.T, s *stack.Stack, change func(*stack.Agent)) *stack.Agent {
	t.Helper()
	a, err := s.NewAgent()
	must(t, err)
	change(a)
	must(t, a.Start())
	return a
}

// quick is a configuration for tests that see containers restart: their back-off is a second at most.
func quick(a *stack.Agent) {
	a.Config["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "1s"}
}

// longestBackOff is the longest back-off of agents that are unhurried.
const longestBackOff = 10 * time.Second

// unhurried is for tests of the back-off itself: a slow machine reports an exit only after seconds.
func unhurried(a *stack.Agent) {
	a.Config["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": longestBackOff.String()}
}

// manifest is a pod with this spec, in YAML, in which HELLO stands for the image.
func manifest(s *stack.Stack, name, spec string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  %s\n", name,
		strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "), "HELLO", s.HelloImage()))
}

// onNode is the name that a static pod gets.
func onNode(name string) string { return name + "-" + isolate.HostName }

// containersOf lists the containers of a static pod, whatever their state, oldest first; optionally only those with the given
// names.
func containersOf(t *testing.T, s *stack.Stack, pod string, names ...string) []*runtimeapi.Container {
	t.Helper()
	all, err := s.Containers(t.Context())
	must(t, err)
	all = slices.DeleteFunc(all, func(c *runtimeapi.Container) bool {
		return c.Labels["io.kubernetes.pod.name"] != onNode(pod) ||
			len(names) > 0 && !slices.Contains(names, c.Labels["io.kubernetes.container.name"])
	})
	slices.SortFunc(all, func(a, b *runtimeapi.Container) int { return int(a.CreatedAt - b.CreatedAt) })
	return all
}

// newest waits for a container of that pod and name to be in that state as its newest one, and gives it.
func newest(t *testing.T, s *stack.Stack, pod, name string, state runtimeapi.ContainerState) *runtimeapi.Container {
	t.Helper()
	var found *runtimeapi.Container
	await(t, func() error {
		all := containersOf(t, s, pod, name)
		if len(all) == 0 {
			return fmt.Errorf("pod %s has no container %s", pod, name)
		}
		if found = all[len(all)-1]; found.State != state {
			return fmt.Errorf("container %s of pod %s is %v", name, pod, found.State)
		}
		return nil
	})
	return found
}

// up is newest for a container that runs.
func up(t *testing.T, s *stack.Stack, pod, name string) *runtimeapi.Container {
	t.Helper()
	return newest(t, s, pod, name, runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// down is newest for a container that has ended, and returns its full status.
func down(t *testing.T, s *stack.Stack, pod, name string) *runtimeapi.ContainerStatus {
	t.Helper()
	c := newest(t, s, pod, name, runtimeapi.ContainerState_CONTAINER_EXITED)
	resp, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
	must(t, err)
	return resp.Status
}

// output returns the output of a container that has ended.
func output(t *testing.T, s *stack.Stack, pod, name string) string {
	t.Helper()
	text, err := s.Logs(t.Context(), down(t, s, pod, name).Id)
	must(t, err)
	return text
}

// awaitPod waits until look accepts the agent's static pod, and returns it.
func awaitPod(t *testing.T, a *stack.Agent, name string, look func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		state := now.Pod(onNode(name))
		if state == nil {
			return fmt.Errorf("the agent knows no pod %s", name)
		}
		pod = state.Pod
		return look(pod)
	})
	return pod
}

// inPhase is for awaitPod.
func inPhase(phase corev1.PodPhase) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Status.Phase != phase {
			return fmt.Errorf("pod %s is %s: %+v", p.Name, p.Status.Phase, p.Status)
		}
		return nil
	}
}

// ready is for awaitPod: all containers run.
func ready(p *corev1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready: %+v", p.Name, p.Status)
}

// waitsFor is for awaitPod: one of the pod's containers waits for that reason.
func waitsFor(reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && w.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no container of pod %s waits for %s: %+v", p.Name, reason, p.Status)
	}
}

// forgotten waits until the agent knows no pod of that name.
func forgotten(t *testing.T, a *stack.Agent, name string) {
	t.Helper()
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err == nil && now.Pod(onNode(name)) != nil {
			err = fmt.Errorf("the agent still has pod %s: %+v", name, now.Pod(onNode(name)))
		}
		return err
	})
}

// awaitProblem waits until the agent names a problem of that file with that text, and gives it.
func awaitProblem(t *testing.T, a *stack.Agent, file, text string) stack.Problem {
	t.Helper()
	var found stack.Problem
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(now.Problems, func(p stack.Problem) bool {
			return strings.HasSuffix(p.Path, "/"+file) && strings.Contains(p.Field+" "+p.Message, text)
		})
		if i < 0 {
			return fmt.Errorf("no problem of %s with %q among %+v", file, text, now.Problems)
		}
		found = now.Problems[i]
		return nil
	})
	return found
}

// awaitLogged waits until the agent's log has a line with all these words.
func awaitLogged(t *testing.T, a *stack.Agent, words ...string) {
	t.Helper()
	await(t, func() error {
		for line := range strings.Lines(a.Log()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has all of %q", words)
	})
}

// awaitFile waits until a file holds that text.
func awaitFile(t *testing.T, path, want string) {
	t.Helper()
	await(t, func() error {
		got, err := os.ReadFile(path)
		if err == nil && string(got) != want {
			err = fmt.Errorf("%s holds %q, want %q", path, got, want)
		}
		return err
	})
}

// cleared waits until nothing of any pod is left: in the runtime, in the agent's folders, on the machine.
func cleared(t *testing.T, s *stack.Stack, a *stack.Agent) {
	t.Helper()
	done(t, s, a)
	must(t, s.AwaitNoLeftovers())
}

// done waits until nothing of any pod is left in the runtime and in the agent's folders.
func done(t *testing.T, s *stack.Stack, a *stack.Agent) {
	t.Helper()
	nothing(t, s)
	for _, dir := range []string{a.RootDir + "/pods", a.PodLogsDir} {
		await(t, func() error {
			left, err := os.ReadDir(dir)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%s still has %v", dir, left)
			}
			return err
		})
	}
}

// asStarted checks that the running containers are the same as before, by ID.
func asStarted(t *testing.T, s *stack.Stack, before []*runtimeapi.Container) {
	t.Helper()
	now := map[string]bool{}
	all, err := s.Containers(t.Context())
	must(t, err)
	for _, c := range all {
		now[c.Id] = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	for _, c := range before {
		if !now[c.Id] {
			t.Errorf("container %s of pod %s does not run any more", c.Id, c.Labels["io.kubernetes.pod.name"])
		}
	}
}

// settled waits until the agent has read its sources and the runtime since its start.
func settled(t *testing.T, a *stack.Agent) {
	t.Helper()
	await(t, func() error {
		status, text, err := a.Healthz(t.Context(), "")
		if err == nil && status != 200 {
			err = fmt.Errorf("healthz: %s", text)
		}
		return err
	})
}

// withFolder is manifest for a pod whose containers share a folder of the host: at /data, in place of DATA in their spec.
func withFolder(s *stack.Stack, name, dir, spec string) string {
	spec = strings.ReplaceAll(spec, "DATA", "volumeMounts: [{name: data, mountPath: /data}]")
	return manifest(s, name, strings.TrimSpace(spec)+"\nvolumes: [{name: data, hostPath: {path: "+dir+"}}]")
}

// statusOf is the status of a pod's container, an init container or another.
func statusOf(p *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// sent returns the runtime's full status of a container.
func sent(t *testing.T, s *stack.Stack, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	resp, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	must(t, err)
	return resp.Status
}
