package eviction

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/messages"
)

// reclaims answers the first requests.
func (n *node) reclaims(containers int) {
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{Removed: containers})
	n.work()
	n.Send(messages.Images, messages.ImagesReclaimed{})
	n.work()
}

// The space of removed containers may be freed a little later: no pod is evicted before.
func TestTheSpaceOfRemovedContainersIsAwaited(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	n.reclaims(1)
	n.Advance(freedTimeout - freedLook)
	n.work()
	n.expect("as long as it may come", messages.EventThresholdMet, "containers", "images")
	n.Advance(freedLook)
	n.work()
	n.expect("when it does not come", "evict big")

	n = newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	n.reclaims(1)
	n.m = full(500)
	n.Advance(freedTimeout)
	n.work()
	n.expect("when it comes", messages.EventThresholdMet, "containers", "images")
}

// A ranking by writable layers measured before the shortage may be wrong, unless the first pod's end suffices.
func TestFiguresOfWritableLayersAreAwaited(t *testing.T) {
	begin := func(layer, volume uint64) *node {
		n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 0), of("small", 0, 0, 0).on(layer, 0, volume))
		n.m = full(50)
		n.publish()
		n.start()
		n.reclaims(0)
		return n
	}
	n := begin(5, 0)
	n.Advance(3 * layersLook)
	n.work()
	n.expect("while they are old", messages.EventThresholdMet, "containers", "images")
	n.pods[0] = of("big", 0, 0, 0).on(90, 0, 0)
	for _, p := range n.pods {
		p.stats.Containers[0].Rootfs.Time = metav1.NewTime(n.Now())
	}
	n.Advance(layersLook)
	n.work()
	n.expect("when they are new", "evict big")

	begin(5, 60).expect("one that is enough", messages.EventThresholdMet, "containers", "images", "evict small")

	n = begin(5, 0)
	for range layersTimeout / time.Second {
		n.Advance(time.Second)
		n.work()
	}
	n.expect("a runtime that never measures", messages.EventThresholdMet, "containers", "images", "evict small")
}

// A new pod may be the one that uses the memory. No other pod is evicted before it has figures, or a while has passed.
func TestFiguresOfNewcomersAreAwaited(t *testing.T) {
	begin := func() *node {
		n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi"}}, of("modest", 0, 60, 80), of("hog", 0, 0, 0))
		n.pods[1].stats.Memory = nil
		n.m = Measurement{Readings: map[Signal]Reading{MemoryAvailable: {50 * mi, 1000 * mi}}}
		n.publish()
		n.start()
		n.work()
		n.expect("without figures", messages.EventThresholdMet)
		return n
	}
	n := begin()
	n.pods[1] = of("hog", 0, 260, 0)
	n.Advance(newcomerLook)
	n.work()
	n.expect("with figures", "evict hog")

	n = begin()
	for range newcomerTimeout / newcomerLook {
		n.Advance(newcomerLook)
		n.work()
	}
	if got := n.did(); len(got) != 1 {
		t.Errorf("a pod that is never measured: %q", got)
	}
}
