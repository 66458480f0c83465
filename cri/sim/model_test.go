package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

// TestAnyOrderOfCalls makes random calls, ignores the answers, and checks the invariants of a runtime after each step.
func TestAnyOrderOfCalls(t *testing.T) {
	h := start(t, sim.Options{Script: sim.Script{ByContainer: map[string]sim.Sequence{
		"short": {sim.ExitAfter(3*time.Second, 1)}, "once": {sim.ExitAfter(0, 0)},
	}}})
	rapid.Check(t, func(t *rapid.T) {
		t.Cleanup(h.clear)
		someSandbox := func(t *rapid.T) string {
			s := h.Snapshot().Sandboxes
			if len(s) == 0 {
				return "none"
			}
			return s[rapid.IntRange(0, len(s)-1).Draw(t, "sandbox")].ID
		}
		someContainer := func(t *rapid.T) string {
			c := h.Snapshot().Containers
			if len(c) == 0 {
				return "none"
			}
			return c[rapid.IntRange(0, len(c)-1).Draw(t, "container")].ID
		}
		somePod := func(t *rapid.T) *runtimeapi.PodSandboxConfig {
			config := pod(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pod"))
			config.Metadata.Attempt = uint32(rapid.IntRange(0, 1).Draw(t, "attempt"))
			return config
		}
		ignore := func(error) {}
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) {
				_, err := h.rt.RunPodSandbox(h.ctx, &runtimeapi.RunPodSandboxRequest{Config: somePod(t)})
				ignore(err)
			},
			"create": func(t *rapid.T) {
				config := somePod(t)
				name := rapid.SampledFrom([]string{"main", "short", "once"}).Draw(t, "name")
				_, err := h.create(someSandbox(t), config, containerOf(config, name, uint32(rapid.IntRange(0, 1).Draw(t, "attempt"))))
				ignore(err)
			},
			"start":          func(t *rapid.T) { ignore(h.start(someContainer(t))) },
			"stop":           func(t *rapid.T) { h.must(h.stop(someContainer(t), int64(rapid.IntRange(0, 1).Draw(t, "grace")))) },
			"remove":         func(t *rapid.T) { h.must(h.remove(someContainer(t))) },
			"stop sandbox":   func(t *rapid.T) { h.must(h.stopSandbox(someSandbox(t))) },
			"remove sandbox": func(t *rapid.T) { h.must(h.removeSandbox(someSandbox(t))) },
			"advance": func(t *rapid.T) {
				h.clock.Advance(time.Duration(rapid.IntRange(0, 4).Draw(t,
					"s")) * time.Second)
			},
			"exit": func(*rapid.T) { ignore(h.Exit("uid-b", "main", 137, "")) },
			"":     func(t *rapid.T) { h.consistent(t) },
		})
	})
}

// clear removes every sandbox, and with them every container.
func (h *harness) clear() {
	for _, sb := range h.Snapshot().Sandboxes {
		h.must(h.removeSandbox(sb.ID))
	}
	h.idle()
	if s := h.Snapshot(); len(s.Sandboxes)+len(s.Containers)+h.clock.Pending() != 0 {
		h.t.Fatalf("left over: %d sandboxes, %d containers, %d timers", len(s.Sandboxes), len(s.Containers), h.clock.Pending())
	}
}

// consistent checks the invariants of any state.
func (h *harness) consistent(t *rapid.T) {
	s := h.Snapshot()
	sandboxes, names, ips := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, sb := range s.Sandboxes {
		name := fmt.Sprint(sb.Name, sb.UID, sb.Attempt)
		if sandboxes[sb.ID] || names[name] || sb.IP != "" && ips[sb.IP] {
			t.Fatalf("twice: %+v", sb)
		}
		if sb.Ready && sb.IP == "" {
			t.Fatalf("no address: %+v", sb)
		}
		sandboxes[sb.ID], names[name], ips[sb.IP] = true, true, true
	}
	for _, c := range s.Containers {
		name := fmt.Sprint(c.Name, c.PodName, c.PodUID, c.Attempt)
		if names[name] || !sandboxes[c.SandboxID] {
			t.Fatalf("twice, or without a sandbox: %+v", c)
		}
		names[name] = true
		exited := c.State == runtimeapi.ContainerState_CONTAINER_EXITED
		if exited == c.FinishedAt.IsZero() || c.Running() && c.StartedAt.IsZero() ||
			exited != (c.Reason != "") || c.FinishedAt.Before(c.StartedAt) && exited {
			t.Fatalf("contradiction: %+v", c)
		}
		if st := h.status(c.ID); st.State != c.State || st.ExitCode != c.ExitCode || st.Reason != c.Reason {
			t.Fatalf("snapshot %+v, status %v", c, st)
		}
	}
	list, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	h.must(err)
	pods, err := h.rt.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	h.must(err)
	if len(list.Containers) != len(s.Containers) || len(pods.Items) != len(s.Sandboxes) {
		t.Fatalf("lists of %d and %d, snapshot of %d and %d",
			len(list.Containers), len(pods.Items), len(s.Containers), len(s.Sandboxes))
	}
}
