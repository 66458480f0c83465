package eviction

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// node is the actor with scripted pods and figures.
type node struct {
	*supervisortest.Kit
	t       *testing.T
	board   *board.Board
	m       Measurement
	pods    []candidate
	phases  map[string]string // of a pod's actor; running by default
	failing map[string]bool
	fail    messages.PodFailure // of failing pods
	life    time.Time           // of pods
	audited bool
	opts    Options
}

func newNode(t *testing.T, limits Limits, pods ...candidate) *node {
	n := &node{t: t, board: board.New(), pods: pods, phases: map[string]string{}, failing: map[string]bool{},
		fail: messages.PodFailure{Reason: messages.EventEvicted, Grace: ptr.To[int64](1)}, audited: true}
	n.opts = Options{
		Limits: limits, NodeName: "n", Board: n.board, LocalStorage: true, Measure: func(context.Context) Measurement { return n.m },
		Figures: func(context.Context, map[types.UID]bool, bool) (out []api.PodStats, partial, old map[types.UID]bool, _ []string) {
			partial, old = map[types.UID]bool{}, map[types.UID]bool{}
			for _, p := range n.pods {
				out = append(out, *p.stats)
				partial[p.pod.UID], old[p.pod.UID] = p.partial, p.old
			}
			return out, partial, old, nil
		},
	}
	return n
}

func (n *node) publish() {
	s := board.Snapshot{Life: n.life, Audited: n.audited}
	for _, p := range n.pods {
		one := board.Pod{Pod: p.pod, Status: &v1.PodStatus{Phase: v1.PodRunning}, Phase: "running"}
		if phase := n.phases[p.pod.Name]; phase != "" {
			one.Phase = phase
			one.Status = &v1.PodStatus{Phase: v1.PodFailed}
		}
		if n.failing[p.pod.Name] {
			one.Failure = &n.fail
		}
		s.Pods = append(s.Pods, one)
	}
	n.board.Publish(s)
}

func (n *node) start() { n.Kit = supervisortest.New(n.t, messages.Eviction, New(n.opts)("")) }

// work does all requested work except the wait for leaving pods.
func (n *node) work() {
	for len(n.Work) > 0 && n.Work[0].Name != "await the end of evicted pods" {
		w := n.Work[0]
		n.Work = n.Work[1:]
		n.RunOne(w)
	}
}

// did lists the requests to other actors, in order.
func (n *node) did() (out []string) {
	for _, s := range n.Take() {
		switch m := s.Msg.(type) {
		case messages.ReclaimImages:
			out = append(out, "images")
		case messages.ReclaimContainers:
			out = append(out, "containers")
		case messages.EvictPod:
			out = append(out, "evict "+m.UID)
		case messages.RecordEvent:
			out = append(out, m.Reason)
		}
	}
	return out
}

func (n *node) expect(when string, want ...string) {
	n.t.Helper()
	got := n.did()
	if len(got) != len(want) {
		n.t.Fatalf("%s: %q, want %q", when, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			n.t.Fatalf("%s: %q, want %q", when, got, want)
		}
	}
}

func full(available int64) Measurement {
	return Measurement{Readings: map[Signal]Reading{NodeFsAvailable: {available * mi, 1000 * mi}}}
}

var tenPercent = Limits{Hard: map[string]string{"nodefs.available": "10%"}}

// Unused objects are reclaimed first; then pods are evicted one at a time, each after a measurement of the previous one's
// effect.
func TestTheOrderOfReclaim(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90), of("small", 0, 0, 0).on(0, 5, 0), of("done", 0, 0, 0).on(0, 0, 0))
	n.phases["done"] = "finished"
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.expect("at first", messages.EventThresholdMet, "containers")
	n.Advance(10 * time.Second)
	n.work()
	n.expect("while that is under way")
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.expect("then", "images")
	n.Send(messages.Images, messages.ImagesReclaimed{})
	n.work()
	n.expect("when that was not enough", "evict big")
	n.failing["big"] = true
	n.publish()
	n.Advance(20 * time.Second)
	n.work()
	n.expect("while the pod ends")
	n.phases["big"], n.m = "finished", full(200)
	n.publish()
	n.RunWork()
	n.expect("when it has ended, and that is enough")
	n.m = full(50)
	n.Advance(10 * time.Second)
	n.RunWork()
	n.expect("short again", messages.EventThresholdMet, "containers")
}

// The removal of unused images may suffice.
func TestImagesAloneHealANode(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.m = full(500)
	n.Send(messages.Images, messages.ImagesReclaimed{Removed: 1})
	n.RunWork()
	n.expect("nothing more", messages.EventThresholdMet, "containers", "images")
}

// pass advances the time by this much, with a measurement every ten seconds.
func (n *node) pass(d time.Duration) {
	for range d / (10 * time.Second) {
		n.Advance(10 * time.Second)
		n.work()
	}
}

// The wait for an unresponsive service is bounded, and the next one is asked: the removal of images may suffice.
func TestAReclaimThatIsLost(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.pass(reclaimTimeout - 10*time.Second)
	n.expect("at first", messages.EventThresholdMet, "containers")
	n.pass(10 * time.Second)
	n.expect("when the containers are not removed in time", "images")
	n.pass(reclaimTimeout - 10*time.Second)
	n.Send(messages.Runtime, messages.ContainersReclaimed{}) // a late answer
	n.work()
	n.expect("while images have their time")
	n.pass(10 * time.Second)
	n.expect("at last", "evict big")
}

// A restarted service is asked again, if it is the awaited one.
func TestAServiceThatBeginsAnewIsAskedAgain(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	begin := func(service messages.Address) { n.Send(messages.Node, messages.ServiceStarted{Service: service}) }
	begin(messages.Runtime)
	n.work()
	begin(messages.Images)
	begin(messages.Runtime)
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	begin(messages.Runtime)
	begin(messages.Images)
	n.Send(messages.Images, messages.ImagesReclaimed{})
	begin(messages.Images)
	n.work()
	n.expect("each once more", messages.EventThresholdMet, "containers", "containers", "images", "images", "evict big")
}

// While more and more space is freed, the wait for a removal goes on: there may be a thousand images.
func TestAReclaimThatIsLong(t *testing.T) {
	n := newNode(t, tenPercent, of("big", 0, 0, 0).on(0, 0, 90))
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.expect("at first", messages.EventThresholdMet, "containers", "images")
	for i := range 5 {
		n.m = full(51 + int64(i))
		n.pass(reclaimTimeout)
	}
	n.expect("while more is left each time")
	n.m = full(53)
	n.pass(reclaimTimeout)
	n.expect("when no more is left", "evict big")
}

// A hard threshold does not wait for the grace period that a soft one gave a pod. The pod gets less time; if that does not help,
// another pod is evicted.
func TestAHardThresholdBreaksASoftWait(t *testing.T) {
	limits := Limits{Hard: map[string]string{"memory.available": "50Mi"}, Soft: map[string]string{"memory.available": "100Mi"},
		SoftGrace: map[string]string{"memory.available": "1m"}}
	n := newNode(t, limits, of("a", 0, 500, 0), of("b", 0, 400, 0))
	for _, p := range n.pods {
		p.pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	}
	n.opts.MaxGrace = 300
	n.m = memory(80)
	n.publish()
	n.start()
	n.work()
	n.pass(time.Minute)
	n.expect("for the soft threshold", messages.EventThresholdMet, "evict a")
	n.failing["a"], n.fail = true, messages.PodFailure{Reason: messages.EventEvicted, Message: "soft", Grace: ptr.To[int64](300)}
	n.publish()
	long := n.take("await the end of evicted pods")
	n.pass(time.Minute)
	n.expect("while that alone is met")
	n.m = memory(40)
	n.Advance(10 * time.Second)
	n.work()
	var hastened []messages.EvictPod
	for _, s := range n.Take() {
		if m, ok := s.Msg.(messages.EvictPod); ok {
			hastened = append(hastened, m)
		}
	}
	if len(hastened) != 1 || hastened[0].UID != "a" || *hastened[0].Failure.Grace != hardGrace || hastened[0].Failure.Message != "soft" {
		t.Fatalf("for the hard one: %+v", hastened)
	}
	n.fail.Grace = ptr.To[int64](hardGrace)
	n.publish()
	n.RunOne(long) // it was cancelled
	wait := n.take("await the end of evicted pods")
	n.pass(20 * time.Second)
	n.expect("while it leaves")
	if wait.Timeout != leaveTimeout+hardGrace*time.Second {
		t.Errorf("it is waited for %s", wait.Timeout)
	}
	wait.Timeout = time.Nanosecond // it does not end
	n.RunOne(wait)
	n.work()
	n.expect("when that has no effect", "evict b")
}

// While a pod leaves for a soft threshold of memory, unused objects on a disk are reclaimed, and then the pod gets less time.
func TestDiskPressure_WaitsForNoSoftThreshold(t *testing.T) {
	limits := Limits{Hard: map[string]string{"nodefs.available": "10%"}, Soft: map[string]string{"memory.available": "100Mi"},
		SoftGrace: map[string]string{"memory.available": "10s"}}
	n := newNode(t, limits, of("a", 0, 500, 0).on(1, 0, 0), of("b", 0, 400, 0).on(2, 0, 0))
	n.opts.MaxGrace = 30
	n.m = memory(80)
	n.publish()
	n.start()
	n.work()
	n.pass(10 * time.Second)
	n.expect("for the soft threshold", messages.EventThresholdMet, "evict a")
	n.failing["a"], n.fail = true, messages.PodFailure{Reason: messages.EventEvicted, Grace: ptr.To[int64](30)}
	n.publish()
	n.take("await the end of evicted pods")
	n.m.Readings[NodeFsAvailable] = Reading{50 * mi, 1000 * mi}
	n.pass(10 * time.Second)
	n.expect("for the disk", "containers")
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.Send(messages.Images, messages.ImagesReclaimed{})
	n.work()
	n.expect("when that was not enough", "images", messages.EventThresholdMet, "evict a")
}

// A new actor or agent evicts no other pod while an evicted pod ends.
func TestARestartAwaitsThePodThatEnds(t *testing.T) {
	limits := Limits{Hard: map[string]string{"memory.available": "100Mi"}}
	n := newNode(t, limits, of("a", 0, 500, 0), of("b", 0, 400, 0))
	n.m = memory(50)
	n.failing["a"] = true
	n.publish()
	n.start()
	n.work()
	n.expect("at first", messages.EventThresholdMet)
	if len(n.Work) != 1 || n.Work[0].Timeout < leaveTimeout {
		t.Fatalf("work %v", n.Work)
	}
	n.Work[0].Timeout = time.Nanosecond // it does not end
	n.RunOne(n.Work[0])
	n.Work = n.Work[1:]
	n.work()
	n.expect("when it does not end", "evict b")
}

// An eviction that a restarted pods actor forgot is decided again once all pods are known.
func TestAnEvictionThatPodsForgot(t *testing.T) {
	n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi"}}, of("a", 0, 500, 0), of("b", 0, 400, 0))
	n.m = memory(50)
	n.publish()
	n.start()
	n.work()
	n.expect("at first", messages.EventThresholdMet, "evict a")
	wait := n.take("await the end of evicted pods")
	ended := make(chan struct{})
	run := wait.Run
	wait.Run = func(ctx context.Context) any { // pods restarts meanwhile
		defer close(ended)
		return run(ctx)
	}
	go func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				n.life = n.life.Add(time.Second)
				n.publish()
			}
		}
	}()
	wait.Timeout = time.Minute
	n.RunOne(wait)
	<-ended
	n.work()
	n.expect("again", "evict a")
}

// A preempted pod may take an hour to end: eviction does not wait for it.
func TestAPreemptedPodIsNotAwaited(t *testing.T) {
	n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi"}}, of("a", 0, 500, 0), of("b", 0, 400, 0))
	n.m = memory(50)
	n.failing["a"], n.fail = true, messages.PodFailure{Reason: "Preempting"}
	n.publish()
	n.start()
	n.work()
	n.expect("at first", messages.EventThresholdMet, "evict b")
}

// While a new agent adopts its pods, none of the few known ones is evicted for the others. A pod that is never read delays this
// only for a while.
func TestAllPodsAreKnownFirst(t *testing.T) {
	n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi"}}, of("a", 0, 500, 0), of("b", 0, 400, 0))
	n.m = memory(50)
	n.start()
	n.life, n.audited = n.Now(), false
	n.publish()
	n.work()
	n.Advance(10 * time.Second)
	n.work()
	n.expect("before the runtime was read")
	n.audited, n.phases["b"] = true, "reading"
	n.publish()
	n.Advance(10 * time.Second)
	n.work()
	n.expect("before b was read")
	n.phases["b"] = ""
	n.publish()
	n.Advance(10 * time.Second)
	n.work()
	n.expect("then", messages.EventThresholdMet, "evict a")

	n = newNode(t, n.opts.Limits, of("a", 0, 500, 0), of("b", 0, 400, 0))
	n.m = memory(50)
	n.start()
	n.life, n.phases["b"] = n.Now(), "reading"
	n.publish()
	for range 7 {
		n.work()
		n.Advance(10 * time.Second)
	}
	n.work()
	n.expect("after a minute", messages.EventThresholdMet, "evict a")
}

// For a disk, pods with unfinished walks of volumes and logs are not evicted. Other pods are spared for some measurements,
// because a pod with a long walk may be the one that fills the disk.
func TestUnmeasuredPodsAreNotEvicted(t *testing.T) {
	n := newNode(t, tenPercent, of("small", 0, 0, 0).on(0, 0, 5), of("big", 0, 0, 0))
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.Send(messages.Images, messages.ImagesReclaimed{})
	n.work()
	n.expect("before all are walked, for as long as is waited", messages.EventThresholdMet, "containers", "images", "evict small")

	n = newNode(t, tenPercent, of("small", 0, 0, 0).on(0, 0, 5), of("big", 0, 0, 0))
	n.m = full(50)
	n.publish()
	n.start()
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.Send(messages.Images, messages.ImagesReclaimed{})
	figures := 0
	n.opts.Figures = nil
	for len(n.Work) > 0 {
		w := n.Work[0]
		n.Work = n.Work[1:]
		if w.Name == "figures of pods" {
			if figures++; figures == 2 {
				n.pods[1] = n.pods[1].on(0, 0, 90)
			}
		}
		if w.Name == "await the end of evicted pods" {
			break
		}
		n.RunOne(w)
	}
	n.expect("when the big one is walked", messages.EventThresholdMet, "containers", "images", "evict big")
}

// A pod whose containers are in back-off is evicted if its data fills the disk. If its end would free nothing, it is not.
func TestEviction_PodsWithoutRunningContainer(t *testing.T) {
	idle := func(name string, mebibytes uint64) candidate {
		c := of(name, -1, 0, 0).on(0, 0, mebibytes)
		c.stats.Containers = nil
		return c
	}
	for _, c := range []struct{ data, want string }{{"much", "evict crashing"}, {"none", "evict running"}} {
		bytes := map[string]uint64{"much": 90}[c.data]
		n := newNode(t, tenPercent, of("running", 0, 0, 0).on(0, 0, 5), idle("crashing", bytes), idle("waiting", 0))
		n.pods[2].stats.VolumeStats = nil
		if n.pods[2].unmeasured() {
			t.Error("eviction waits for figures of a pod that has no data")
		}
		n.m = full(50)
		n.publish()
		n.start()
		n.work()
		n.Send(messages.Runtime, messages.ContainersReclaimed{})
		n.work()
		n.Send(messages.Images, messages.ImagesReclaimed{})
		n.work()
		n.expect("with "+c.data+" data", messages.EventThresholdMet, "containers", "images", c.want)
	}
}

// A pod that outlived its wait is forgotten once it is gone from the node.
func TestEviction_ForgetsPodsThatAreGone(t *testing.T) {
	n := newNode(t, tenPercent, of("stuck", 0, 0, 0).on(0, 0, 5))
	n.m = full(50)
	n.publish()
	a := New(n.opts)("").(*actor)
	a.awaited["stuck"], a.awaited["gone"] = true, true
	n.Kit = supervisortest.New(t, messages.Eviction, a)
	n.work()
	n.Send(messages.Runtime, messages.ContainersReclaimed{})
	n.work()
	n.Send(messages.Images, messages.ImagesReclaimed{})
	n.work()
	if len(a.awaited) != 1 || !a.awaited["stuck"] {
		t.Errorf("got %v, want the pod that is there", a.awaited)
	}
}

// A pod may use more than the figures of its unfinished walk show: an eviction of another pod waits for the walk. The pod itself
// is evicted without a wait if its lower bound is the largest usage.
func TestEviction_PartialFigures(t *testing.T) {
	for name, c := range map[string]struct {
		bound, whole uint64 // of the pod with the walk in progress, in MiB; the other uses 55
		rounds       int    // until its walk ends
		want         string
	}{
		"it hides the most":      {bound: 1, whole: 90, rounds: 2, want: "evict deep"},
		"it uses little":         {bound: 1, whole: 2, rounds: 2, want: "evict other"},
		"its bound is enough":    {bound: 60, whole: 90, rounds: 99, want: "evict deep"},
		"its walk does not end":  {bound: 1, whole: 90, rounds: 99, want: "evict other"},
		"it ends with less than": {bound: 4, whole: 4, rounds: 1, want: "evict other"},
	} {
		t.Run(name, func(t *testing.T) {
			deep := of("deep", 0, 0, 0).on(0, 0, c.bound)
			deep.partial = true
			n := newNode(t, tenPercent, of("other", 0, 0, 0).on(0, 0, 55), deep)
			n.m = full(50)
			n.publish()
			n.start()
			n.work()
			n.Send(messages.Runtime, messages.ContainersReclaimed{})
			n.work()
			n.Send(messages.Images, messages.ImagesReclaimed{})
			for rounds := 0; len(n.Work) > 0; {
				w := n.Work[0]
				if w.Name == "await the end of evicted pods" {
					break
				}
				n.Work = n.Work[1:]
				if w.Name == "figures of pods" {
					if rounds++; rounds == c.rounds {
						n.pods[1] = of("deep", 0, 0, 0).on(0, 0, c.whole)
					}
				}
				n.RunOne(w)
			}
			n.expect("with a walk in progress", messages.EventThresholdMet, "containers", "images", c.want)
		})
	}
}

// Only a pod that would rank first if it used the whole disk holds up an eviction.
func TestHidden_CountsPodsThatMayRankFirst(t *testing.T) {
	partial := func(c candidate) candidate { c.partial = true; return c }
	old := func(c candidate) candidate { c.old = true; return c }
	for name, c := range map[string]struct {
		first, second candidate
		want          int
	}{
		"equal priority":                    {of("a", 0, 0, 0).on(0, 0, 9), partial(of("b", 0, 0, 0).on(0, 0, 1)), 1},
		"higher priority, first is above":   {of("a", 0, 0, 0).on(0, 0, 9), partial(of("b", 1, 0, 0).on(0, 0, 1)), 0},
		"higher priority, first is below":   {of("a", 0, 0, 10).on(0, 0, 9), partial(of("b", 1, 0, 10).on(0, 0, 1)), 1},
		"both partial":                      {partial(of("a", 0, 0, 0).on(0, 0, 9)), partial(of("b", 0, 0, 0).on(0, 0, 1)), 1},
		"only the first partial":            {partial(of("a", 0, 0, 0).on(0, 0, 9)), of("b", 0, 0, 0).on(0, 0, 1), 0},
		"the first by old figures":          {old(of("a", 0, 0, 0).on(0, 0, 9)), of("b", 0, 0, 0).on(0, 0, 1), 1},
		"unmeasured":                        {of("a", 0, 0, 0).on(0, 0, 9), of("b", 0, 0, 0), 1},
		"unmeasured, with higher priority":  {of("a", 0, 0, 0).on(0, 0, 9), of("b", 1, 0, 0), 0},
		"unmeasured, and there is no other": {of("a", 0, 0, 0), of("b", 1, 0, 0), 2},
	} {
		ranked, unmeasured := split([]candidate{c.first, c.second})
		if got := hidden(NodeFsAvailable, contents{layers: true, files: true, logs: true}, ranked, unmeasured); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// Memory takes precedence over disks. A soft threshold acts after its grace period, with the pod's own.
func TestMemoryFirstAndSoftLater(t *testing.T) {
	limits := Limits{Hard: map[string]string{"nodefs.available": "10%"}, Soft: map[string]string{"memory.available": "100Mi"},
		SoftGrace: map[string]string{"memory.available": "1m"}}
	n := newNode(t, limits, of("a", 0, 500, 0))
	n.opts.MaxGrace = 20
	n.m = memory(50)
	n.publish()
	n.start()
	n.work()
	n.expect("in the grace period")
	n.m.Readings[NodeFsAvailable] = Reading{50 * mi, 1000 * mi}
	n.Advance(time.Minute)
	n.work()
	var evicted *messages.EvictPod
	for _, s := range n.Outbox {
		if m, ok := s.Msg.(messages.EvictPod); ok {
			evicted = &m
		}
	}
	if evicted == nil || *evicted.Failure.Grace != 20 || evicted.Failure.Reason != "Evicted" || evicted.Failure.Disruption == "" {
		t.Fatalf("%+v of %v", evicted, n.did())
	}
}

// A clock that is set shortens and lengthens neither the grace period of a soft threshold nor the transition period.
func TestThresholds_ClockSet(t *testing.T) {
	limits := Limits{Soft: map[string]string{"memory.available": "100Mi"}, SoftGrace: map[string]string{"memory.available": "1m"}}
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		n := newNode(t, limits, of("a", 0, 500, 0))
		n.opts.Transition = 5 * time.Minute
		n.m = memory(50)
		n.publish()
		n.start()
		n.work()
		n.SetClock(jump)
		n.pass(50 * time.Second)
		n.expect("in the grace period")
		n.pass(10 * time.Second)
		n.expect("after it", messages.EventThresholdMet, "evict a")
		n.take("await the end of evicted pods")
		n.m = memory(500)
		n.SetClock(jump)
		for _, c := range []struct {
			after time.Duration
			under bool
		}{{4*time.Minute + 50*time.Second, true}, {20 * time.Second, false}} {
			n.pass(c.after)
			var last messages.NodePressureObserved
			for _, s := range n.Take() {
				if m, ok := s.Msg.(messages.NodePressureObserved); ok {
					last = m
				}
			}
			if len(last.Pressures) == 0 || last.Pressures[0].Under != c.under {
				t.Errorf("clock set by %s: after another %s the pressures are %+v, want pressure: %t", jump, c.after, last, c.under)
			}
		}
	}
}

// A pod's own limit is enforced without any shortage, on all evictable pods above it.
func TestOwnLimitsAreHeld(t *testing.T) {
	static := sized("static", 11)
	static.pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	n := newNode(t, Limits{}, sized("a", 11), sized("b", 10), sized("c", 12), static)
	n.publish()
	n.start()
	n.work()
	n.expect("at once", "evict a", "evict c")
	n.opts.Static = true
	n.start()
	n.work()
	n.expect("with the switch", "evict a", "evict c", "evict static")
	n.opts.LocalStorage = false
	n.start()
	n.work()
	n.expect("switched off")
	n.m = memory(50)
	n.opts.Limits = Limits{Hard: map[string]string{"memory.available": "100Mi"}}
	n.start()
	n.work()
	n.expect("switched off, while memory is short", messages.EventThresholdMet, "evict a")
}

// Without evictable pods nothing is evicted, and unused objects are looked for again.
func TestCriticalPodsStay(t *testing.T) {
	c := of("critical", 2000000000, 0, 0).on(0, 0, 90)
	n := newNode(t, tenPercent, c)
	n.m = full(50)
	n.publish()
	n.start()
	for range 3 {
		n.work()
		n.Send(messages.Runtime, messages.ContainersReclaimed{})
		n.Send(messages.Images, messages.ImagesReclaimed{})
		n.work()
		n.Advance(10 * time.Second)
	}
	n.expect("again and again", messages.EventThresholdMet, "containers", "images", "containers", "images", "containers", "images")
}

// The flags from the issue, and the thresholds copied from them.
func TestThresholdsThatFollow(t *testing.T) {
	l := Limits{Hard: map[string]string{"memory.available": "500Mi", "nodefs.available": "1Gi", "imagefs.available": "100Gi"},
		Soft: map[string]string{"pid.available": "1k"}, SoftGrace: map[string]string{"pid.available": "30s"},
		MinimumReclaim: map[string]string{"memory.available": "0Mi", "nodefs.available": "500Mi", "imagefs.available": "2Gi"},
		PodsBounded:    true}
	got := map[string]string{}
	for _, one := range l.list() {
		got[one.field+" "+string(one.signal)] = one.text + " " + one.reclaim + " " + one.grace.String()
	}
	want := map[string]string{
		"evictionHard memory.available": "500Mi 0Mi 0s", "evictionHard allocatableMemory.available": "500Mi 0Mi 0s",
		"evictionHard nodefs.available": "1Gi 500Mi 0s", "evictionHard imagefs.available": "100Gi 2Gi 0s",
		"evictionHard containerfs.available": "100Gi 2Gi 0s", "evictionSoft pid.available": "1k  30s",
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %q, want %q", k, got[k], v)
		}
	}
}

// A shortage of memory between two measurements is acted upon at once, and a watch of outdated thresholds ends.
func TestMemoryIsWatched(t *testing.T) {
	n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi", "allocatableMemory.available": "10%",
		"imagefs.inodesFree": "5"}}, of("a", 0, 500, 0))
	var levels []map[Signal]int64
	short := true
	n.opts.Await = func(ctx context.Context, l map[Signal]int64) bool {
		levels = append(levels, l)
		if !short {
			<-ctx.Done()
		}
		return short
	}
	n.m = memory(500)
	n.publish()
	n.start()
	n.RunOne(n.take("Measure"))
	watch := n.take("await a shortage")
	n.m = memory(50)
	n.RunOne(watch)
	n.RunOne(n.take("Measure"))
	n.RunOne(n.take("figures of pods"))
	n.expect("at once", messages.EventThresholdMet, "evict a")
	if len(n.Work) != 1 { // the wait for the pod: no threshold is left to watch
		t.Errorf("%d pieces of work", len(n.Work))
	}
	n.phases["a"], n.m, short = "finished", memory(500), false
	n.publish()
	n.RunOne(n.take("await the end of evicted pods"))
	n.RunOne(n.take("Measure"))
	watch = n.take("await a shortage")
	n.m.Readings[AllocatableMemoryAvailable] = Reading{100 * mi, 200 * mi}
	n.m.Readings[ImageFsInodesFree] = Reading{50, 100}
	n.Advance(10 * time.Second)
	n.RunOne(n.take("Measure"))
	n.RunOne(watch) // it ends, since there is more to watch
	n.RunOne(watch) // a late answer harms nothing
	if len(levels) != 3 || len(levels[1]) != 1 || levels[1][MemoryAvailable] != 100*mi {
		t.Errorf("levels %v", levels)
	}
	short = true
	n.RunOne(n.take("await a shortage"))
	if got := levels[len(levels)-1]; len(got) != 3 || got[ImageFsInodesFree] != 5 {
		t.Errorf("what has changed is watched by levels %v", got)
	}
}

// take returns the first piece of work with this name.
func (n *node) take(name string) supervisors.Work {
	n.t.Helper()
	for i, w := range n.Work {
		if w.Name == name {
			n.Work = slices.Delete(n.Work, i, i+1)
			return w
		}
	}
	n.t.Fatalf("no work %q", name)
	return supervisors.Work{}
}

func TestWhenASignalIsLookedAtAgain(t *testing.T) {
	for _, c := range []struct {
		signal Signal
		left   int64
		want   time.Duration
	}{
		{MemoryAvailable, -1, leastLook}, {MemoryAvailable, 1 << 30, leastLook}, {AllocatableMemoryAvailable, 8 << 30, 2 * time.Second},
		{MemoryAvailable, 1 << 45, mostLook}, {NodeFsAvailable, 0, leastOtherLook}, {ImageFsAvailable, 8 << 30, 4 * time.Second},
		{ContainerFsAvailable, 1 << 40, mostLook}, {NodeFsInodesFree, 200_000, 4 * time.Second}, {PIDAvailable, 10, leastOtherLook},
	} {
		if got := lookIn(c.signal, c.left); got != c.want {
			t.Errorf("%d of %s: %s, want %s", c.left, c.signal, got, c.want)
		}
	}
}

// The meter waits for disks beside memory where the runtime located them, and as long as one of them hangs.
func TestTheMeterAwaitsDisks(t *testing.T) {
	meter := Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: "/node"}.Meter()
	meter.imageDir = "/images"
	hangs := make(chan struct{})
	meter.statfs = func(path string) (disk, error) {
		if path == "/node" {
			<-hangs
		}
		return disk{space: Reading{50, 100}, inodes: Reading{5, 10}}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool, 1)
	go func() {
		done <- meter.Await(ctx, map[Signal]int64{NodeFsAvailable: 60, ImageFsAvailable: 40, MemoryAvailable: 1})
	}()
	if meter.Await(t.Context(), map[Signal]int64{NodeFsAvailable: 60, MemoryAvailable: 1 << 60}) != true {
		t.Error("memory that is short is not told while a disk hangs")
	}
	close(hangs)
	if !<-done {
		t.Error("a disk that is short is not told when it answers")
	}
	cancel()
	for s, level := range map[Signal]int64{ImageFsAvailable: 51, ImageFsInodesFree: 6, NodeFsInodesFree: 6, PIDAvailable: 1 << 60} {
		if !meter.Await(t.Context(), map[Signal]int64{s: level}) {
			t.Errorf("%s is short, and that is not told", s)
		}
	}
	if ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond); meter.Await(ctx, map[Signal]int64{ContainerFsAvailable: 1 << 60}) {
		t.Error("a file system of which nothing is known is short")
	}
	cancel()
}

// A hanging disk does not delay the check of another.
func TestADiskThatHangsHoldsUpNoOther(t *testing.T) {
	meter := Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: "/node"}.Meter()
	meter.imageDir = "/images"
	hangs := make(chan struct{})
	defer close(hangs)
	var looks atomic.Int64
	meter.statfs = func(path string) (disk, error) {
		if path == "/node" {
			<-hangs
		}
		return disk{space: Reading{100 - looks.Add(1), 100}}, nil // the second check finds less
	}
	meter.disks["/node"] = overdue.New("/node", time.Hour, func() (disk, error) { return meter.statfs("/node") })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if !meter.Await(ctx, map[Signal]int64{NodeFsAvailable: 60, ImageFsAvailable: 99}) {
		t.Error("a disk that is short is not told while another one hangs")
	}
}

// A bug in a measurement restarts the actor, and does not end the agent.
func TestABugInAMeasurement(t *testing.T) {
	meter := Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: "/node", Images: imageFs{err: errors.New("away")}}.Meter()
	meter.disks = nil // a write to it panics
	defer func() {
		if recover() == nil {
			t.Error("nobody is told")
		}
	}()
	meter.Measure(t.Context())
}

// A panic in a check of disks ends the wait, not the process: the caller receives it and restarts the actor.
func TestABugInALookAtDisks(t *testing.T) {
	meter := Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: "/node"}.Meter()
	meter.disks = nil // a write to it panics
	defer func() {
		if recover() == nil {
			t.Error("nobody is told")
		}
	}()
	meter.Await(t.Context(), map[Signal]int64{NodeFsAvailable: 1, MemoryAvailable: 1})
}

// The meter waits until less than a level is left, as long as its context lasts.
func TestTheMeterAwaitsMemory(t *testing.T) {
	meter := Places{"/proc", "/sys/fs/cgroup", "/", "/", nil, nil}.Meter()
	now := meter.MeasureMemory(t.Context()).Readings[MemoryAvailable].Available
	if now == 0 {
		t.Skip("the machine does not tell its memory")
	}
	if !meter.Await(t.Context(), map[Signal]int64{MemoryAvailable: 1 << 60}) {
		t.Error("what is short is not told")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if meter.Await(ctx, map[Signal]int64{MemoryAvailable: 1}) {
		t.Error("what is not short is told")
	}
}

func BenchmarkMeasureMemory(b *testing.B) {
	meter := Places{"/proc", "/sys/fs/cgroup", "/", "/", nil, nil}.Meter()
	for b.Loop() {
		meter.MeasureMemory(b.Context())
	}
}

// sized returns a candidate that uses this many MiB of a volume with a limit of 10 MiB.
func sized(name string, used uint64) candidate {
	c := of(name, 0, 500, 0).on(0, 0, used)
	c.pod.Spec.Volumes[0].EmptyDir.SizeLimit = ptr.To(resource.MustParse("10Mi"))
	return c
}

// An eviction for memory requests no walk of volumes, and waits neither for a check of limits nor for a decision about a disk.
func TestEviction_Memory_WaitsForNoWalks(t *testing.T) {
	for name, slow := range map[string]string{"while limits are checked": "limits of pods", "while a disk is short": "figures of pods"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Limits{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}}, sized("a", 5))
			figures := n.opts.Figures
			walks := false
			n.opts.Figures = func(ctx context.Context, urgent map[types.UID]bool, short bool) (
				_ []api.PodStats, partial, old map[types.UID]bool, _ []string,
			) {
				walks = urgent != nil
				return figures(ctx, urgent, short)
			}
			n.m = memory(500)
			if slow == "figures of pods" {
				n.m = full(50)
			}
			n.publish()
			n.start()
			n.RunOne(n.take("Measure"))
			late := n.take(slow)
			n.did()
			n.m = memory(50)
			n.Advance(10 * time.Second)
			n.RunOne(n.take("Measure"))
			n.RunOne(n.take("figures of pods"))
			n.expect("when memory is short", messages.EventThresholdMet, "evict a")
			if walks {
				t.Error("the eviction for memory requests walks")
			}
			n.failing["a"] = true
			n.publish()
			n.RunOne(late)
			n.expect("when the slow figures arrive")
		})
	}
}
