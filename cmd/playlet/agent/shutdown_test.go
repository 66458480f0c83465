package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// power is a machine that shuts down on demand.
type power struct {
	mu       sync.Mutex
	changed  chan struct{}
	down     bool
	released int
}

func newPower() *power { return &power{changed: make(chan struct{})} }

// Await implements shutdown.Inhibitor.
func (p *power) Await(ctx context.Context, was bool) (bool, error) {
	for {
		p.mu.Lock()
		down, changed := p.down, p.changed
		p.mu.Unlock()
		if down != was {
			return down, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return was, nil
		}
	}
}

func (p *power) turn(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	close(p.changed)
	p.changed = make(chan struct{})
}

// Release implements shutdown.Inhibitor.
func (p *power) Release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released++
	return nil
}

// Close implements shutdown.Inhibitor.
func (p *power) Close() error { return nil }

func (p *power) goesOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.released > 0
}

// The machine shuts down: the Node is not ready, and the pods end in the order of their priorities. The shutdown continues after
// its actor is killed in between. The agent of the next boot restarts the static pod, but not the pod of the API server.
func TestTheMachineShutsDown(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"})+
		"  priorityClassName: system-node-critical\n  priority: 2000001000\n")
	r.binds(manifest("api", "Always", nil, []string{"main forever"}))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "api") && isUp(s, "web-node") })
	ready := func() v1.NodeCondition {
		node, err := r.clients.Main.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			return v1.NodeCondition{}
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c
			}
		}
		return v1.NodeCondition{}
	}
	r.eventually("a node that is ready", func() bool { return ready().Status == v1.ConditionTrue })
	r.power.turn(true)
	r.eventually("a node that is not", func() bool {
		return ready().Status == v1.ConditionFalse && strings.Contains(ready().Message, "node is shutting down")
	})
	r.agent.system.Kill(messages.Shutdown, "test")
	r.eventually("the shutdown goes on", r.power.goesOn)
	if n := r.runtime.Snapshot().Running(); n > 0 {
		t.Errorf("%d containers still run", n)
	}
	var ends []string
	for _, c := range r.runtime.Calls("StopContainer") {
		ends = append(ends, c.Target.PodName)
	}
	if len(ends) != 2 || ends[0] != "api" {
		t.Errorf("the pods ended in the order %v", ends)
	}
	r.eventually("the status of the pod", func() bool {
		pod, err := r.clients.Main.CoreV1().Pods("default").Get(t.Context(), "api", metav1.GetOptions{})
		if err != nil || pod.Status.Phase != v1.PodFailed || pod.Status.Reason != "Terminated" ||
			pod.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			return false
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.DisruptionTarget {
				return c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
			}
		}
		return false
	})
	r.stop()
	r.power = nil
	r.start(nil)
	r.await("the static pod", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
	r.awaitPod("api", func(p *pods.PublishedPod) bool { return p.Phase == "finished" })
	if isUp(r.runtime.Snapshot(), "api") {
		t.Error("the pod of the API server runs again")
	}
}

// The machine halts before its pods have ended. The next boot completes the shutdown, and does not restart the pod of the API
// server.
func TestAMachineThatEndsBeforeItsPods(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"}))
	r.binds(manifest("api", "Always", nil, []string{"main forever"}))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "api") && isUp(s, "web-node") })
	release := r.runtime.Inject(sim.Fault{Call: "StopContainer", Kind: sim.Hang, Times: -1})
	r.power.turn(true)
	r.eventually("a pod is being ended", func() bool { return len(r.runtime.Calls("StopContainer")) > 0 })
	if phase := r.pod("api").Status.Phase; phase != v1.PodRunning {
		t.Fatalf("the pod is %s before it has ended", phase)
	}
	r.agent.system.Kill(messages.Node, "the machine ends")
	if err := <-r.agent.failed; err == nil {
		t.Error("the agent ended without a reason")
	}
	release()
	if err := r.runtime.Reboot(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.power = nil
	created := len(r.runtime.Calls("CreateContainer"))
	r.start(nil)
	r.await("the static pod", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
	r.eventually("the end is told", func() bool {
		s := r.pod("api").Status
		i := slices.IndexFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		return s.Phase == v1.PodFailed && s.Reason == "Terminated" && i >= 0 && s.Conditions[i].Status == v1.ConditionTrue
	})
	for _, c := range r.runtime.Calls("CreateContainer")[created:] {
		if c.Target.PodName == "api" {
			t.Error("the pod of the API server runs again")
		}
	}
}

// A shutdown is cancelled after it has ended the pods. No source recreates static pods, so the agent restarts them.
func TestStaticPodsRunAgainAfterACancelledShutdown(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"}))
	r.await("the pod", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
	r.power.turn(true)
	r.eventually("the shutdown goes on", r.power.goesOn)
	r.awaitPod("web-node", func(p *pods.PublishedPod) bool { return p.Phase == "finished" })
	state := filepath.Join(r.dir, "root", "graceful_node_shutdown_state")
	r.eventually("the times of the shutdown", func() bool {
		text, err := os.ReadFile(state)
		return err == nil && !strings.Contains(string(text), `"0001-01-01T00:00:00Z"`)
	})
	r.power.turn(false)
	r.await("the pod again", func(s sim.Snapshot) bool { return isUp(s, "web-node") })
}
