package agent

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
)

// awaitPod waits until a pod is published so.
func (r *rig) awaitPod(name string, ok func(*pods.PublishedPod) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var was string
	for s := r.agent.observatory.board.Now(); ; {
		for i := range s.Pods {
			if p := &s.Pods[i]; p.Pod.Name == name {
				if ok(p) {
					return
				}
				was = p.Phase
				if p.Waiting != nil {
					was += ", waits for " + p.Waiting.String()
				}
			}
		}
		var err error
		if s, err = r.agent.observatory.board.After(ctx, s.Version); err != nil {
			r.t.Fatalf("pod %s: %s", name, was)
		}
	}
}

func waitsFor(code, says string) func(*pods.PublishedPod) bool {
	return func(p *pods.PublishedPod) bool {
		return p.Waiting != nil && p.Waiting.Code == code && strings.Contains(p.Waiting.Message, says)
	}
}

func isRunning(p *pods.PublishedPod) bool { return p.Status != nil && p.Status.Phase == v1.PodRunning }

// Without a network, pods on the host's begin and the others wait; they go on when it comes, and need no other word.
func TestPodsWaitForTheNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.runtime.SetNetworkReady(false, "cni plugin not initialized")
	r.start(nil)
	r.write("a.yaml", manifest("inner", "Always", nil, []string{"main image"}))
	r.write("b.yaml", strings.Replace(manifest("outer", "Always", nil, []string{"main image"}), "spec:\n",
		"spec:\n  hostNetwork: true\n", 1))
	r.awaitPod("outer-node", isRunning)
	r.awaitPod("inner-node",
		waitsFor("NetworkNotReady", "network is not ready: NetworkPluginNotReady: cni plugin not initialized"))
	if n := len(r.runtime.Snapshot().Sandboxes); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	r.runtime.SetNetworkReady(true, "")
	r.awaitPod("inner-node", isRunning)
	r.runtime.SetNetworkReady(false, "gone again")
	r.write("c.yaml", manifest("late", "Always", nil, []string{"main image"}))
	r.awaitPod("late-node", waitsFor("NetworkNotReady", "gone again"))
	r.awaitPod("inner-node", isRunning)
	for _, c := range r.runtime.Snapshot().Containers {
		if c.Attempt != 0 {
			t.Errorf("%s/%s was started again", c.PodName, c.Name)
		}
	}
}

// A static pod that is not admitted reports the reason, and starts once the obstacle is removed.
func TestAStaticPodThatIsNotAdmittedWaits(t *testing.T) {
	r := newRig(t, sim.Options{}, "--max-pods=2", "--node-labels=disk=ssd")
	r.start(nil)
	plain := manifest("picky", "Always", nil, []string{"main image"})
	r.write("a.yaml", strings.Replace(plain, "spec:\n", "spec:\n  nodeSelector: {disk: hdd}\n", 1))
	r.awaitPod("picky-node", waitsFor("NodeAffinity", "wants the label disk=hdd, and this node has ssd"))
	r.write("b.yaml", manifest("one", "Always", nil, []string{"main image"}))
	r.write("c.yaml", manifest("two", "Always", nil, []string{"main image"}))
	r.awaitPod("one-node", isRunning)
	r.awaitPod("two-node", isRunning)
	r.write("a.yaml", strings.Replace(plain, "spec:\n", "spec:\n  nodeSelector: {disk: ssd}\n", 1))
	r.awaitPod("picky-node", waitsFor("OutOfpods", "requested: 1, used: 2, capacity: 2"))
	r.remove("b.yaml")
	r.awaitPod("picky-node", isRunning)
}
