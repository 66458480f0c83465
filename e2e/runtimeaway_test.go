//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// unhealthy waits until the health check fails with these words.
func unhealthy(t *testing.T, a *stack.Agent, words ...string) {
	t.Helper()
	await(t, func() error {
		status, text, err := a.Healthz(t.Context(), "")
		if err != nil {
			return err
		}
		if status != http.StatusInternalServerError {
			return fmt.Errorf("healthz answers %d %s", status, text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("healthz does not speak of %q: %s", w, text)
			}
		}
		return nil
	})
}

// The runtime is killed while pods run, and comes back: it is waited for, and the pods do not notice.
func TestTheRuntimeIsKilledAndComesBack(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		for i := range 3 {
			must(t, a.Write(fmt.Sprintf("p%d.yaml", i), helloManifest(fmt.Sprintf("p%d", i), s.HelloImage())))
		}
		before := running(t, s, 3)
		pod := awaitPod(t, a, "p0", ready)
		settled(t, a)
		must(t, s.KillRuntime())
		unhealthy(t, a, "[-]runtime failed", s.Socket())
		awaitLogged(t, a, "runtime", s.Socket())
		greeting(t, &stack.Pod{IP: pod.Status.PodIP})
		// New pods wait, and undesired ones are ended afterwards.
		must(t, a.Write("late.yaml", manifest(s, "late", sleeper)))
		must(t, a.Remove("p2.yaml"))
		must(t, s.StartRuntime())
		settled(t, a)
		up(t, s, "late", "c")
		forgotten(t, a, "p2")
		for _, c := range before {
			name := c.Labels["io.kubernetes.pod.name"]
			if name == onNode("p2") {
				continue
			}
			if now := running(t, s, 3); !strings.Contains(ids(now), c.Id) {
				t.Errorf("the container of pod %s is another", name)
			}
		}
	})
}

// The runtime is killed during a roll-out: all pods start, and running ones continue.
func TestTheRuntimeIsKilledDuringARollOut(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		const pods = 20
		a := s.Agent(t)
		for i := range pods {
			name := fmt.Sprintf("p%02d", i)
			must(t, a.Write(name+".yaml", manifest(s, name, sleeper)))
		}
		for _, some := range []int{3, 9} {
			await(t, func() error {
				now, err := s.CRI().ListContainers(t.Context(), onlyRunning)
				if err == nil && len(now.Containers) < some {
					err = fmt.Errorf("%d containers run", len(now.Containers))
				}
				return err
			})
			now, err := s.CRI().ListContainers(t.Context(), onlyRunning)
			must(t, err)
			must(t, s.KillRuntime())
			must(t, s.StartRuntime())
			asStarted(t, s, now.Containers)
		}
		running(t, s, pods)
		for i := range pods {
			awaitPod(t, a, fmt.Sprintf("p%02d", i), ready)
			must(t, a.Remove(fmt.Sprintf("p%02d.yaml", i)))
		}
		nothing(t, s)
		must(t, a.Kill9())
		must(t, s.SweepByForce())
	})
}

// The agent starts without a runtime: it reports that, waits, and works once there is one.
func TestTheRuntimeIsAbsentAtStart(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		must(t, s.TermRuntime())
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", sleeper)))
		unhealthy(t, a, "[-]runtime failed", s.Socket())
		awaitLogged(t, a, "runtime", s.Socket())
		must(t, s.StartRuntime())
		up(t, s, "p", "c")
		settled(t, a)
	})
}

// A runtime that is there and does not answer is none either.
func TestTheRuntimeHangs(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", sleeper)))
		before := up(t, s, "p", "c")
		settled(t, a)
		must(t, s.FreezeRuntime())
		unhealthy(t, a, "[-]runtime failed")
		must(t, s.ThawRuntime())
		settled(t, a)
		if after := up(t, s, "p", "c"); after.Id != before.Id {
			t.Error("the container is another")
		}
	})
}
