package pods

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// small is a node of a cluster with one processor and room for four pods.
func small() LocalNode {
	return LocalNode{Registered: true, Node: admission.Node{Object: thisObject(nil)}, Allocatable: func() v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("4")}
	}}
}

func thisObject(labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}
}

// node is the actor under test with one source of static pods and the API server; life begins another one of it.
type node struct {
	*supervisortest.Kit
	actor *actor
	board *board.Board
	path  string
	life  func()
}

func beginCluster(t *testing.T, here LocalNode) *node { return beginNode(t, here, true) }

func beginNode(t *testing.T, here LocalNode, cluster bool) *node {
	t.Helper()
	n := &node{path: t.TempDir()}
	n.life = func() {
		n.board = board.New()
		n.actor = New(Options{
			Sources: []messages.Address{messages.File, messages.APIServer}, Board: n.board, Dir: n.path, LocalNode: here,
			Cluster: cluster,
		})("pods").(*actor)
		n.Kit = supervisortest.New(t, messages.Pods, n.actor)
		n.RunWork()
	}
	n.life()
	return n
}

// known reports the node's object and the pods found in the runtime.
func (n *node) known(found ...string) {
	n.Send(messages.Registration, messages.NodeObserved{Node: thisObject(map[string]string{"disk": "ssd"})})
	audit(n.Kit, found...)
}

// asking returns a pod of the API server that requests milli thousandths of a processor.
func asking(uid string, milli int64) *v1.Pod {
	p := pod(uid, uid)
	p.CreationTimestamp = metav1.NewTime(time.Unix(int64(len(uid)), 0))
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI),
	}}}}
	return p
}

func static(p *v1.Pod) *v1.Pod {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	return p
}

func critical(p *v1.Pod) *v1.Pod {
	p.Spec.Priority = new(int32(2_000_001_000))
	return p
}

// desired returns the message that a pod's actor would receive now.
func (n *node) desired(uid string) messages.PodWanted {
	n.TB.Helper()
	n.RunWork()
	n.Take()
	n.Send(messages.PodAddress(uid), messages.GetDesired{UID: uid})
	got := sent[messages.PodWanted](n.Kit)
	if len(got) != 1 {
		n.TB.Fatalf("pod %s is told %+v", uid, got)
	}
	return got[0]
}

// waits returns the reason code of a held pod, or "".
func (n *node) waits(uid string) string { return n.waitsFor(uid).Code }

func (n *node) waitsFor(uid string) messages.Reason {
	n.Advance(time.Second)
	for _, p := range n.board.Now().Pods {
		if string(p.Pod.UID) == uid && p.Phase == "held" {
			return *p.Waiting
		}
	}
	return messages.Reason{}
}

func (n *node) spawned(want ...string) {
	n.TB.Helper()
	if !slices.Equal(n.Spawned, want) {
		n.TB.Errorf("spawned %v, want %v", n.Spawned, want)
	}
}

// A pod that does not fit gets its final status, on disk, and is handled like a finished one, also by the next agent.
func TestARefusedPodIsFinished(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 700), asking("bb", 700))
	n.spawned("a", "bb")
	events := sent[messages.RecordEvent](n.Kit)
	if len(events) != 1 || events[0].Reason != "OutOfcpu" || events[0].Type != "Warning" || events[0].Object.UID != "bb" ||
		events[0].Object.Kind != "Pod" {
		t.Errorf("events %+v", events)
	}
	check := func() {
		t.Helper()
		final := n.desired("bb").Final
		if final == nil || final.Phase != v1.PodFailed || final.Reason != "OutOfcpu" || final.StartTime.IsZero() ||
			final.Message != "Pod was rejected: Node didn't have enough resource: cpu, requested: 700, used: 700, capacity: 1000" {
			t.Fatalf("%+v", final)
		}
		if n.desired("a").Final != nil {
			t.Fatal("the one that was admitted is finished, too")
		}
	}
	check()
	n.RunWork()
	n.life()
	n.known("a")
	wants(n.Kit, messages.APIServer, asking("a", 700), asking("bb", 700))
	if len(sent[messages.RecordEvent](n.Kit)) > 0 {
		t.Error("it is refused anew")
	}
	check()
}

// A pod for another operating system does not wait: it fails, with the kubelet's reason, and stays failed.
func TestAPodForAnotherSystemIsRefused(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	p := asking("w", 1)
	p.Spec.OS = &v1.PodOS{Name: v1.Windows}
	for range 2 {
		wants(n.Kit, messages.APIServer, p)
		if w := n.desired("w"); w.Final == nil || w.Final.Phase != v1.PodFailed || w.Final.Reason != "PodOSNotSupported" {
			t.Errorf("it is told %+v", w)
		}
		p = p.DeepCopy() // the API server's version after that
		p.Status = v1.PodStatus{Phase: v1.PodFailed, StartTime: &metav1.Time{Time: time.Unix(1, 0)}}
		n.life()
		n.known()
	}
}

// A running pod is never refused, however much the others request, and its claim counts.
func TestWhatRunsIsNotRefused(t *testing.T) {
	started := asking("dddd", 900)
	started.Status.StartTime = new(metav1.NewTime(time.Unix(9, 0)))
	ending := asking("eeeee", 900)
	ending.DeletionTimestamp = new(metav1.NewTime(time.Unix(9, 0)))
	n := beginCluster(t, small())
	n.known("bb", "ccc")
	wants(n.Kit, messages.APIServer, asking("a", 100), asking("bb", 900), asking("ccc", 900), started, ending)
	for _, uid := range []string{"bb", "ccc", "dddd", "eeeee"} {
		if n.desired(uid).Final != nil {
			t.Errorf("%s is refused", uid)
		}
	}
	if final := n.desired("a").Final; final == nil || final.Reason != "OutOfpods" {
		t.Errorf("%+v", final)
	}
}

// A pod that is over at the API server does not run again, even without a checkpoint.
func TestAPodThatIsOverIsNotRun(t *testing.T) {
	done := asking("a", 100)
	done.Status = v1.PodStatus{Phase: v1.PodSucceeded, Reason: "Fine"}
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, done)
	if final := n.desired("a").Final; final == nil || final.Phase != v1.PodSucceeded || final.Reason != "Fine" {
		t.Errorf("%+v", final)
	}
}

// The older of two pods that do not both fit is admitted, whatever their order in the list; a static pod comes first.
func TestTheOldestIsAdmittedFirst(t *testing.T) {
	n := beginCluster(t, small())
	wants(n.Kit, messages.APIServer, asking("ccc", 600), asking("a", 300), asking("bb", 300))
	wants(n.Kit, messages.File, static(asking("static", 100)))
	n.known()
	n.spawned("static", "a", "bb", "ccc")
	if n.desired("ccc").Final == nil || n.desired("bb").Final != nil {
		t.Error("the younger one is admitted")
	}
}

// The claim of an ending pod is released as soon as none of its containers runs, and not before.
func TestWhatIsOverHoldsNothing(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 700))
	wants(n.Kit, messages.APIServer, asking("bb", 700)) // a has to end
	if n.desired("bb").Final == nil {
		t.Error("admitted beside one that still ends")
	}
	n.Send(messages.PodAddress("a"), messages.PodStatusChanged{UID: "a", Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	wants(n.Kit, messages.APIServer, asking("bb", 700), asking("ccc", 700))
	if n.desired("ccc").Final != nil {
		t.Error("refused beside one that is over")
	}
}

// A static pod is not refused for good, as no controller would create another: it waits until it can be admitted.
func TestAStaticPodWaits(t *testing.T) {
	n := beginNode(t, small(), false)
	audit(n.Kit)
	var pods []*v1.Pod
	for i := range 5 {
		pods = append(pods, static(asking(fmt.Sprint("s", i), 900))) // cpu is not counted on a standalone node
	}
	wants(n.Kit, messages.File, pods...)
	n.spawned("s0", "s1", "s2", "s3")
	if why := n.waits("s4"); why != "OutOfpods" {
		t.Errorf("it waits for %q", why)
	}
	n.Send(messages.PodAddress("s1"), messages.PodEnded{UID: "s1", Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	n.spawned("s0", "s1", "s2", "s3", "s4")
	if n.desired("s4").Final != nil || n.waits("s4") != "" {
		t.Error("it is not admitted")
	}
}

// New pods of the API server wait for the node's object; pods of other sources do not.
func TestTheNodeIsAwaited(t *testing.T) {
	picky := asking("a", 1)
	picky.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	n := beginCluster(t, small())
	if asked := sent[messages.GetNode](n.Kit); len(asked) != 1 {
		t.Errorf("asked %v", asked)
	}
	audit(n.Kit, "bb")
	wants(n.Kit, messages.File, static(asking("static", 1)))
	wants(n.Kit, messages.APIServer, picky, asking("bb", 1), asking("ccc", 1))
	n.spawned("static", "bb")
	if why := n.waits("a"); why != messages.ReasonNodeUnknown {
		t.Errorf("it waits for %q", why)
	}
	n.Advance(nodeWait)
	n.spawned("static", "bb", "ccc") // while a pod that depends on labels waits on
	if why := n.waits("a"); why != "NodeAffinity" {
		t.Errorf("it waits for %q", why)
	}
	n.Send(messages.Registration, messages.NodeObserved{Node: thisObject(map[string]string{"disk": "ssd"})})
	n.spawned("static", "bb", "ccc", "a")
	if n.desired("a").Final != nil {
		t.Error("it is refused")
	}
}

// A critical pod preempts others, which fail like the kubelet's. It waits until they are gone.
func TestACriticalPodPreempts(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 300), asking("bb", 600))
	n.Take()
	wants(n.Kit, messages.APIServer, asking("a", 300), asking("bb", 600), critical(asking("ccc", 500)), asking("dddd", 200),
		asking("eeeee", 1))
	if events := sent[messages.RecordEvent](n.Kit); len(events) != 2 || events[0].Reason != "Preempting" ||
		events[0].Object.UID != "bb" {
		t.Errorf("events %+v", events)
	}
	n.spawned("a", "bb", "eeeee") // eeeee will find no room
	if why, young := n.waits("ccc"), n.waits("dddd"); why != messages.ReasonPreempting || young != why {
		t.Errorf("it waits for %q, and the younger one, for which there will be room, for %q", why, young)
	}
	fail := n.desired("bb").Fail
	if fail == nil || fail.Reason != "Preempting" || fail.Disruption == "" || n.desired("a").Fail != nil {
		t.Errorf("%+v", fail)
	}
	n.Send(messages.Registration, messages.NodeObserved{}) // reconsidered: no other pod has to go
	if n.desired("a").Fail != nil {
		t.Error("another one is ended, too")
	}
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Status: &v1.PodStatus{Phase: v1.PodFailed}})
	n.spawned("a", "bb", "eeeee", "ccc", "dddd")
	if n.desired("ccc").Final != nil || n.desired("dddd").Final != nil || n.desired("eeeee").Final == nil {
		t.Error("it is refused")
	}
}

// Pods that already end are counted for a second critical pod, and no more pods are ended than necessary.
func TestTheSecondCriticalPod(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	pods := []*v1.Pod{asking("a", 300), asking("bb", 600), critical(asking("ccc", 200))}
	wants(n.Kit, messages.APIServer, pods[:2]...)
	wants(n.Kit, messages.APIServer, pods...)
	if n.desired("a").Fail == nil || n.desired("bb").Fail != nil {
		t.Fatal("the first one's place is not the one of a")
	}
	wants(n.Kit, messages.APIServer, append(pods, critical(asking("dddd", 150)))...)
	if n.desired("bb").Fail != nil {
		t.Error("bb is ended for what is free already")
	}
	wants(n.Kit, messages.APIServer, append(pods, critical(asking("dddd", 150)), critical(asking("eeeee", 400)))...)
	if n.desired("bb").Fail == nil {
		t.Error("bb is not ended, although the third one needs its place")
	}
	n.Send(messages.PodAddress("a"), messages.PodEnded{UID: "a", Status: &v1.PodStatus{Phase: v1.PodFailed}})
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Status: &v1.PodStatus{Phase: v1.PodFailed}})
	n.spawned("a", "bb", "ccc", "dddd", "eeeee")
}

// If no room can be made, a critical pod of the API server fails, and a static one waits.
func TestNoRoomCanBeMade(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 300), critical(asking("bb", 1001)))
	wants(n.Kit, messages.File, static(asking("static", 1001)))
	if final := n.desired("bb").Final; final == nil || final.Reason != "UnexpectedAdmissionError" {
		t.Errorf("%+v", final)
	}
	if why := n.waits("static"); why != "OutOfcpu" || n.desired("a").Fail != nil {
		t.Errorf("it waits for %q", why)
	}
}

// Pods that need a network are informed that there is none, and again when there is one.
func TestTheNetworkIsReported(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	host := asking("bb", 1)
	host.Spec.HostNetwork = true
	wants(n.Kit, messages.APIServer, asking("a", 1), host)
	none := messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: NoCNI"}
	n.Take()
	n.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReason: "NoCNI"})
	got := sent[messages.PodWanted](n.Kit)
	if len(got) != 1 || got[0].Pod.UID != "a" || got[0].NoNetwork == nil || *got[0].NoNetwork != none {
		t.Errorf("told %+v", got)
	}
	if n.desired("bb").NoNetwork != nil {
		t.Error("a pod on the host's network is told that there is none")
	}
	n.Take()
	n.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReason: "NoCNI"})
	if got = sent[messages.PodWanted](n.Kit); len(got) != 0 {
		t.Errorf("told once more: %+v", got)
	}
	n.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReady: true})
	if got = sent[messages.PodWanted](n.Kit); len(got) != 1 || got[0].NoNetwork != nil {
		t.Errorf("told %+v", got)
	}
}

// The agent's own measurements count, not the conditions that an earlier agent reported. As with the kubelet, there is no
// pressure before the first measurement.
func TestAShortageIsOneThatWasMeasured(t *testing.T) {
	n := beginCluster(t, small())
	old := thisObject(nil)
	old.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
	n.Send(messages.Registration, messages.NodeObserved{Node: old})
	audit(n.Kit)
	wants(n.Kit, messages.APIServer, asking("a", 1))
	if final := n.desired("a").Final; final != nil {
		t.Errorf("it is refused: %+v", final)
	}
	pressure := func(under bool) {
		n.Send(messages.Eviction, messages.NodePressureObserved{Pressures: []messages.Pressure{
			{Type: v1.NodeMemoryPressure}, {Type: v1.NodeDiskPressure, Under: under}, {Type: v1.NodePIDPressure},
		}})
	}
	pressure(true)
	wants(n.Kit, messages.APIServer, asking("a", 1), asking("bb", 1))
	if final := n.desired("bb").Final; final == nil || final.Reason != "Evicted" ||
		final.Message != "Pod was rejected: The node had condition: [DiskPressure]. " {
		t.Errorf("under pressure: %+v", final)
	}
	pressure(false)
	wants(n.Kit, messages.APIServer, asking("a", 1), asking("bb", 1), asking("ccc", 1))
	if final := n.desired("ccc").Final; final != nil {
		t.Errorf("when it is over: %+v", final)
	}
}

// The capacity is the one read last: added resources are available to the next pod, whatever the API server's Node contains.
func TestWhatThereIsWasReadLast(t *testing.T) {
	here, cpus := small(), "1"
	here.Allocatable = func() v1.ResourceList { return v1.ResourceList{"cpu": resource.MustParse(cpus)} }
	n := beginCluster(t, here)
	object := thisObject(nil)
	object.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse("9")}
	n.Send(messages.Registration, messages.NodeObserved{Node: object})
	audit(n.Kit)
	pods := []*v1.Pod{asking("a", 800), asking("bb", 800)}
	wants(n.Kit, messages.APIServer, pods...)
	if n.desired("a").Final != nil || n.desired("bb").Final == nil {
		t.Error("what the API server has counts")
	}
	cpus = "2"
	wants(n.Kit, messages.APIServer, append(pods, asking("ccc", 800))...)
	if final := n.desired("ccc").Final; final != nil {
		t.Errorf("with a second processor: %+v", final)
	}
}

// While the machine shuts down no pod starts: a pod of the API server is refused for good, a static one waits. A static pod that
// ended with the machine runs again with the next agent; a pod of the API server does not.
func TestNoPodBeginsWhileTheMachineShutsDown(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	statics := []*v1.Pod{static(asking("s", 1))}
	wants(n.Kit, messages.File, statics...)
	wants(n.Kit, messages.APIServer, asking("a", 1))
	n.RunWork()
	shutdown := func(underway bool) {
		n.Send(messages.Shutdown, messages.NodeShutdownObserved{Underway: underway})
		n.RunWork()
	}
	shutdown(true)
	statics = append(statics, static(asking("tt", 1)))
	wants(n.Kit, messages.File, statics...)
	wants(n.Kit, messages.APIServer, asking("a", 1), asking("bb", 1))
	if final := n.desired("bb").Final; final == nil || final.Reason != "NodeShutdown" ||
		final.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
		t.Errorf("refused with %+v", final)
	}
	if got := n.waits("tt"); got != messages.ReasonNodeShutdown {
		t.Errorf("a static pod waits for %q", got)
	}
	for _, uid := range []string{"s", "a"} {
		n.Send(messages.Shutdown, messages.EvictPod{UID: uid, Failure: messages.PodFailure{Reason: messages.ReasonTerminated,
			Message: messages.TerminatedMessage, Disruption: messages.TerminatedMessage}})
		if why := n.desired(uid).Fail; why == nil || why.Reason != "Terminated" {
			t.Errorf("%s is ended for %+v", uid, why)
		}
	}
	shutdown(false)
	if got := n.desired("tt"); got.Final != nil || got.Fail != nil {
		t.Errorf("after a cancellation: %+v", got)
	}
	if got := n.desired("s"); got.Fail == nil || got.Ending != nil {
		t.Errorf("one that has not ended yet when the shutdown is cancelled: %+v", got)
	}
	n.life()
	n.known()
	wants(n.Kit, messages.File, statics...)
	wants(n.Kit, messages.APIServer, asking("a", 1))
	if got := n.desired("s"); got.Fail != nil || got.Final != nil {
		t.Errorf("the static pod does not run again: %+v", got)
	}
	if got := n.desired("a"); got.Fail == nil {
		t.Errorf("the pod of the API server runs again: %+v", got)
	}
}

// A static pod that ended for a shutdown runs again when the shutdown is cancelled. No other pod does.
func TestWhoRunsAgainAfterACancelledShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		pod    *v1.Pod
		reason string
		up     bool
		want   state
	}{
		"a static pod":                 {static(asking("s", 1)), messages.ReasonTerminated, true, ending},
		"while the machine shuts down": {static(asking("s", 1)), messages.ReasonTerminated, false, finished},
		"one that was evicted":         {static(asking("s", 1)), messages.EventEvicted, true, finished},
		"one that the API server has":  {asking("a", 1), messages.ReasonTerminated, true, finished},
		"one that finished by itself":  {static(asking("s", 1)), "", true, finished},
	} {
		e := &entry{uid: "u", state: finished, wanted: &desiredPod{pod: c.pod}, record: record{Final: &v1.PodStatus{Reason: c.reason}}}
		if got, fx := next(e, &view{up: c.up}); got != c.want || (got == ending) != (fx.end != nil && fx.renew) {
			t.Errorf("%s: %s, %+v", name, got, fx)
		}
	}
}

// The scheduler may place a pod by labels that the watch of the Node has not delivered yet. Before a final refusal for the Node's
// labels, taints or own resources, the Node is read again, for a bounded time (kubernetes/kubernetes#134445).
func TestAdmission_RereadsNode(t *testing.T) {
	nvme, held := thisObject(map[string]string{"disk": "nvme"}), messages.ReasonNodeUnknown
	gpus := thisObject(nil)
	gpus.Status.Allocatable = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	tainted := thisObject(nil)
	tainted.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}
	last := uint64(0)
	for name, c := range map[string]struct {
		before, after *v1.Node
		change        func(*v1.PodSpec)
		refused       string
	}{
		"labels": {before: thisObject(nil), after: nvme, change: func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{"disk": "nvme"}
		}},
		"labels for good": {before: thisObject(nil), after: thisObject(nil), refused: "NodeAffinity", change: func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{"disk": "nvme"}
		}},
		"taints": {before: tainted, after: thisObject(nil), change: func(*v1.PodSpec) {}},
		"resources": {before: tainted, after: gpus, change: func(s *v1.PodSpec) {
			s.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
			s.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}},
	} {
		n := beginCluster(t, small())
		n.Send(messages.Registration, messages.NodeObserved{Node: c.before})
		audit(n.Kit)
		n.Take()
		p := asking("a", 1)
		c.change(&p.Spec)
		wants(n.Kit, messages.APIServer, p)
		asked := sent[messages.GetNode](n.Kit)
		if why := n.waits("a"); why != held || len(asked) != 1 || asked[0].Read <= last {
			t.Fatalf("%s: waits for %q, asked %v after %d by an earlier actor", name, why, asked, last)
		}
		last = asked[0].Read                                                 // registration has it, and answers no smaller one
		n.Send(messages.Registration, messages.NodeObserved{Node: c.before}) // not read for this question
		n.Advance(askEvery)
		if again := sent[messages.GetNode](n.Kit); n.waits("a") != held || len(again) == 0 || again[0] != asked[0] {
			t.Errorf("%s: waits for %q, asked again %v", name, n.waits("a"), again)
		}
		n.Send(messages.Registration, messages.NodeObserved{Node: c.after, Read: asked[0].Read})
		if name == "resources" { // the next step of such a pod
			if why := n.waits("a"); why != messages.ReasonAllocating {
				t.Errorf("%s: waits for %q", name, why)
			}
			continue
		}
		if final := n.desired("a").Final; c.refused == "" && final != nil || c.refused != "" && (final == nil || final.Reason != c.refused) {
			t.Errorf("%s: final status %v, want reason %q", name, final, c.refused)
		}
		n.Advance(nodeWait)
		if again := sent[messages.GetNode](n.Kit); len(again) > 1 {
			t.Errorf("%s: asked %v after the answer", name, again)
		}
	}
	n := beginCluster(t, small())
	n.known()
	p := asking("a", 1)
	p.Spec.NodeSelector = map[string]string{"disk": "nvme"}
	wants(n.Kit, messages.APIServer, p)
	for range nodeWait / askEvery {
		n.Advance(askEvery)
	}
	if final := n.desired("a").Final; final == nil || final.Reason != "NodeAffinity" {
		t.Errorf("without an answer: %v", final)
	}
}
