package agent

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/eviction"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// strainedScales are the scales of a node that a test puts under pressure: of memory while more containers than that run, of the
// disk while an image of this name is there.
type strainedScales struct {
	runtime  *sim.Runtime
	most     atomic.Int64 // containers; 0: any number
	image    atomic.Pointer[string]
	measures atomic.Int64
	nudge    atomic.Bool // it is measured once more
}

func (s *strainedScales) Measure(context.Context) eviction.Measurement {
	defer s.measures.Add(1)
	const capacity, plenty, little = 1000 << 20, 500 << 20, 10 << 20
	memory, disk := eviction.Reading{Available: plenty, Capacity: capacity}, eviction.Reading{Available: plenty, Capacity: capacity}
	now := s.runtime.Snapshot()
	if most := s.most.Load(); most > 0 && int64(now.Running()) > most {
		memory.Available = little
	}
	if name := s.image.Load(); name != nil && there(now, *name) {
		disk.Available = little
	}
	return eviction.Measurement{Readings: map[eviction.Signal]eviction.Reading{
		eviction.MemoryAvailable: memory, eviction.NodeFsAvailable: disk,
	}}
}

func (s *strainedScales) ImageSpace(context.Context) (available, capacity int64, err error) {
	return 500 << 20, 1000 << 20, nil
}

func there(s sim.Snapshot, image string) bool {
	return slices.ContainsFunc(s.Images, func(ref string) bool { return strings.Contains(ref, image) })
}

func (s *strainedScales) Await(ctx context.Context, levels map[eviction.Signal]int64) bool {
	for ctx.Err() == nil {
		if s.nudge.CompareAndSwap(true, false) {
			return true
		}
		before := s.measures.Load()
		readings := s.Measure(ctx).Readings
		s.measures.Store(before)
		for signal, level := range levels {
			if readings[signal].Available < level {
				return true
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false
}

// pressedNode is a node with three running pods and a starting one, whose image is present and not yet used.
type pressedNode struct {
	*clusterRig
	scales  *strainedScales
	release func() // the fourth pod's start
}

func newPressed(t *testing.T) *pressedNode {
	r := &pressedNode{clusterRig: newClusterRig(t, sim.Options{Preload: []string{"old:1"}},
		"--eviction-hard=memory.available<100Mi,nodefs.available<10%", "--eviction-pressure-transition-period=1ms", "--minimum-image-ttl-duration=0s")}
	r.scales = &strainedScales{runtime: r.runtime}
	r.clusterRig.scales = r.scales
	for _, name := range []string{"a", "b", "c"} {
		r.binds(manifest(name, "Always", nil, []string{"main forever"}))
	}
	return r
}

// fallsWhole has the whole agent die where it is struck, while something is waited for, and another one begin.
func (r *rig) fallsWhole() chan<- struct{} {
	struck := make(chan struct{}, 4)
	r.meanwhile = func() {
		select {
		case <-struck:
			r.agent.system.Kill(messages.Node, "a test")
			if err := <-r.agent.failed; err == nil {
				r.t.Error("the agent ended without a reason")
			}
			r.stop()
			r.start(nil)
		default:
		}
	}
	return struck
}

func (r *pressedNode) evicted() (names []string) {
	for _, name := range []string{"a", "b", "c", "fresh"} {
		if s := r.pod(name).Status; s.Phase == v1.PodFailed && s.Reason == "Evicted" {
			names = append(names, name)
		}
	}
	return names
}

// day is short of disk while a pod starts, and then of memory. The unused image is removed, and one pod is evicted.
func (r *pressedNode) day(chaos supervisors.Interceptor) {
	gate := &later{Interceptor: chaos}
	r.start(gate)
	r.eventually("three pods run", func() bool { return r.runtime.Snapshot().Running() == 3 })
	r.release = r.runtime.Inject(sim.Fault{Call: "CreateContainer", Pod: "fresh", Kind: sim.Hang, Times: -1})
	r.binds(manifest("fresh", "Always", nil, []string{"main fresh:1"}))
	r.eventually("the fourth one starts", func() bool {
		return there(r.runtime.Snapshot(), "fresh") && len(r.runtime.Calls("CreateContainer")) > 3
	})
	gate.open.Store(true)
	old := "old"
	r.scales.image.Store(&old)
	r.eventually("the image that nobody uses goes", func() bool { return !there(r.runtime.Snapshot(), old) })
	r.release()
	r.eventually("the fourth pod runs", func() bool { return r.runtime.Snapshot().Running() == 4 })
	if names := r.evicted(); len(names) > 0 {
		r.t.Errorf("%v are evicted for what an image alone heals", names)
	}
	r.scales.most.Store(3)
	r.eventually("one pod goes", func() bool { return r.runtime.Snapshot().Running() == 3 && len(r.evicted()) > 0 })
	for range 2 { // further measurements have no effect
		was := r.scales.measures.Load()
		r.scales.nudge.Store(true)
		r.eventually("it is measured again", func() bool { return r.scales.measures.Load() > was && !r.scales.nudge.Load() })
	}
	if names := r.evicted(); len(names) != 1 || r.runtime.Snapshot().Running() != 3 {
		r.t.Errorf("%v are evicted, and one was to go", names)
	}
	r.stop()
	if !there(r.runtime.Snapshot(), "fresh") || len(r.runtime.Calls("RemoveImage")) != 1 {
		r.t.Error("an image that a pod starts with was removed")
	}
	checkViolations(r.t.(*testing.T), r.rig)
}

// One of the actors involved panics at any message, alone or with all others, while the node is short of disk and then of
// memory. The unused image is removed, the image of the starting pod is not, and exactly one pod is evicted.
func TestPressureWhereActorsFall(t *testing.T) {
	t.Parallel()
	w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	if !t.Run("undisturbed", func(t *testing.T) { newPressed(t).day(w) }) {
		return
	}
	strikes := w.strikes([]supervisors.Kind{"eviction", "pods", "runtime", "images"}, "before", "after")
	strikes = append(strikes, w.strikes([]supervisors.Kind{"eviction", "images"}, "all")...)
	onDays(t, strikes, func(t *testing.T, strikes []strike) {
		r, k := newPressed(t), newKiller(strikes)
		k.whole = r.fallsWhole()
		r.day(k)
	})
}
