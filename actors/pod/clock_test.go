package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// After the clock was set back by two hours, and a restart of the agent, a removal from outside is still noticed.
func TestAClockSetBackHidesNoLoss(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	w.now = w.now.Add(-2 * time.Hour)
	w.restart()
	w.settle()
	before, began := w.sandboxes[0].ID, w.now
	w.sandboxes, w.containers = nil, nil // crictl rmp -f
	w.send(w.observed())
	w.settle()
	check(t, w)
	if took := w.containers[0].StartedAt.Sub(began); took > time.Minute {
		t.Errorf("it was missed for %s", took)
	}
	if len(w.sandboxes) != 1 || w.sandboxes[0].ID == before || !slices.Equal(w.runningNames(), []string{"c0"}) {
		t.Errorf("sandboxes %+v, running %v", w.sandboxes, w.runningNames())
	}
}

// A reading that began before an object was created does not prove that it is gone.
func TestAReadingThatBeganBeforeMissesNothing(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	began := a.now
	a.now = a.now.Add(time.Second)
	a.hears(pulled("c0", "image"), started(messages.ContainerFact{
		ID: "k1", Name: "c0", SandboxID: "s1", State: messages.ContainerRunning, CreatedAt: began.Add(-time.Hour), Image: "image",
	}))
	a.hears(messages.PodObserved{Facts: messages.PodFacts{UID: "u1", ReadAt: began}})
	if a.machine.Current() == nil || !a.machine.Container("c0").Running() {
		t.Errorf("it is believed gone: %+v", a.machine.Inspect())
	}
}

// The state of sandboxes and containers does not grow with the number of past ones.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.step(nil)
	w.settle()
	for range 20 {
		w.sandboxes[0].Ready = false
		w.killIn(w.sandboxes[0].ID)
		w.send(w.observed())
		w.settle()
		w.sandboxes, w.containers = w.sandboxes[:1], w.containers[:1] // the collector
		w.send(w.observed())
		w.settle()
	}
	check(t, w)
	m := w.machine
	if kept := fmt.Sprint(len(m.Sandboxes.All), len(m.Container("c0").Attempts), len(m.asks)); kept != "1 2 0" {
		t.Errorf("kept: %s; %+v", kept, m.asks)
	}
}
