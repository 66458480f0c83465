package pods

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/messages"
)

// crowded returns a victim and a critical pod that needs its place.
func crowded() (all []*v1.Pod) {
	victim := asking("bb", 600)
	victim.Spec.TerminationGracePeriodSeconds = new(int64(20))
	return []*v1.Pod{asking("a", 300), victim, critical(asking("ccc", 500))}
}

// A pod is preempted only when the decision is on disk. An agent that is killed in between continues with the same victim alone.
func TestAPreemptionOutlivesTheAgent(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	n.RunWork()
	n.Take()
	wants(n.Kit, messages.APIServer, crowded()...)
	for _, m := range sent[messages.PodWanted](n.Kit) {
		if m.Fail != nil {
			t.Error("it is told before it is on the disk")
		}
	}
	n.Send(messages.PodAddress("bb"), messages.GetDesired{UID: "bb"})
	if got := sent[messages.PodWanted](n.Kit); len(got) != 1 || got[0].Fail != nil {
		t.Errorf("told %+v", got)
	}
	n.RunWork()
	if got := sent[messages.PodWanted](n.Kit); len(got) != 1 || got[0].Fail == nil || got[0].Pod.UID != "bb" {
		t.Fatalf("told %+v", got)
	}
	n.life()
	n.known("a") // the victim is gone
	n.Take()
	wants(n.Kit, messages.APIServer, crowded()...)
	if fail := n.desired("bb").Fail; fail == nil || fail.Reason != "Preempting" || fail.Disruption == "" {
		t.Errorf("%+v", fail)
	}
	if n.desired("a").Fail != nil || n.waits("ccc") != messages.ReasonPreempting {
		t.Error("another one is chosen, or the critical pod does not wait")
	}
	wants(n.Kit, messages.APIServer, crowded()[0], crowded()[2])
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Gone: true, Status: &v1.PodStatus{Phase: v1.PodFailed}})
	n.Send(messages.PodAddress("bb"), messages.ChildStopped{Name: "bb"})
	n.RunWork()
	n.spawned("a", "bb", "ccc")
	n.life()
	n.known("a", "bb")
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	if n.desired("bb").Fail != nil {
		t.Error("what was decided over it outlives it")
	}
}

// A disk that accepts no write delays no critical pod.
func TestAPreemptionThatCannotBeKept(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	n.RunWork()
	if err := os.MkdirAll(filepath.Join(n.path, "records", "bb.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	wants(n.Kit, messages.APIServer, crowded()...)
	if n.desired("bb").Fail == nil {
		t.Error("it is not ended")
	}
}

// The reason of the waiting pod names the victim. If the victim does not end in time, the critical pod starts all the same, and
// no other pod is ended.
func TestAVictimThatDoesNotEnd(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	wants(n.Kit, messages.APIServer, append(crowded(), asking("dddd", 200))...)
	for _, uid := range []string{"ccc", "dddd"} {
		if why := n.waitsFor(uid); why.Code != messages.ReasonPreempting ||
			!strings.Contains(why.Message, "the end of default/bb, ") ||
			!strings.Contains(why.Message, "cpu") {
			t.Errorf("%s waits for %+v", uid, why)
		}
	}
	n.RunWork()
	n.Advance(26 * time.Second)
	n.spawned("a", "bb")
	n.Take()
	n.Advance(3 * time.Second) // one and a half times its grace period
	n.spawned("a", "bb", "ccc", "dddd")
	if n.desired("ccc").Final != nil || n.desired("dddd").Final == nil {
		t.Error("the critical pod is refused, or the other one is not")
	}
	if n.desired("a").Fail != nil {
		t.Error("another one is ended, too")
	}
}

// A missed grace period is reported once, with the kubelet's Event.
func TestAVictimThatDoesNotEndIsReported(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	wants(n.Kit, messages.APIServer, crowded()...)
	n.Take()
	n.Advance(time.Minute)
	events := sent[messages.RecordEvent](n.Kit)
	if len(events) != 1 || events[0].Reason != "ExceededGracePeriod" || events[0].Object.UID != "bb" {
		t.Errorf("%+v", events)
	}
}

// The wait for a deleted pod that does not end is bounded as well.
func TestADeletedPodThatDoesNotEnd(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	gone := crowded()
	gone[1].DeletionTimestamp, gone[1].DeletionGracePeriodSeconds = new(metav1.NewTime(n.Now())), new(int64(2))
	wants(n.Kit, messages.APIServer, gone...)
	if why := n.waitsFor("ccc"); why.Code != messages.ReasonPreempting || !strings.Contains(why.Message, "default/bb") {
		t.Errorf("it waits for %+v", why)
	}
	n.spawned("a", "bb")
	n.Advance(10 * time.Second)
	n.spawned("a", "bb", "ccc")
	if n.desired("ccc").Final != nil || n.desired("a").Fail != nil {
		t.Error("it is refused, or another one is ended")
	}
}

// While a critical pod waits for the end of a deleted pod, an ordinary pod that will fit after that waits as well.
func TestPreemption_LaterPodWaits(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	all := crowded()
	all[1].DeletionTimestamp, all[1].DeletionGracePeriodSeconds = new(metav1.NewTime(n.Now())), new(int64(20))
	all = append(all, asking("dddd", 200), asking("eeeee", 400))
	wants(n.Kit, messages.APIServer, all...)
	for _, uid := range []string{"ccc", "dddd"} {
		if why := n.waitsFor(uid); why.Code != messages.ReasonPreempting ||
			!strings.Contains(why.Message, "the end of default/bb, ") {
			t.Errorf("%s waits for %+v", uid, why)
		}
	}
	if n.desired("a").Fail != nil || n.desired("eeeee").Final == nil {
		t.Error("another one is ended, or one for which there will be no room is not refused")
	}
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Gone: true, Status: &v1.PodStatus{Phase: v1.PodFailed}})
	wants(n.Kit, messages.APIServer, slices.Concat(all[:1], all[2:])...)
	n.Send(messages.PodAddress("bb"), messages.ChildStopped{Name: "bb"})
	n.RunWork()
	n.spawned("a", "bb", "eeeee", "ccc", "dddd")
}

// A victim with its actor in quarantine is ended by an ender, and stays as a failed pod.
func TestAVictimInQuarantineIsEnded(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	n.Send(messages.Pods, messages.ChildQuarantined{Name: "bb", Reason: "panic"})
	wants(n.Kit, messages.APIServer, crowded()...)
	if len(n.Stopped) > 0 {
		t.Error("it is ended before that is on the disk")
	}
	n.RunWork()
	if !slices.Equal(n.Stopped, []string{"bb"}) {
		t.Fatalf("stopped %v", n.Stopped)
	}
	n.Send(messages.Pods, messages.ChildStopped{Name: "bb"})
	n.spawned("a", "bb", "ender bb")
	if w := n.desired("bb"); w.Ending == nil || w.Final != nil {
		t.Errorf("the ender is told %+v", w)
	}
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb"}) // without a status: nothing is known of its containers
	n.RunWork()
	if w := n.desired("bb"); w.Ending == nil || w.Final == nil || w.Unkept {
		t.Errorf("the ender waits for a record, and is told %+v", w)
	}
	end := messages.PodEnded{UID: "bb", Gone: true, Status: &v1.PodStatus{Phase: v1.PodSucceeded}}
	n.Send(messages.PodAddress("bb"), end)
	n.Send(messages.PodAddress("bb"), end)
	n.Send(messages.Pods, messages.ChildStopped{Name: "bb"})
	n.spawned("a", "bb", "ender bb", "ccc", "bb")
	if w := n.desired("bb"); w.Ending != nil || w.Final == nil || w.Final.Phase != v1.PodFailed ||
		w.Final.Reason != messages.ReasonPreempting || n.desired("ccc").Final != nil {
		t.Errorf("it is told %+v", w)
	}
}

// A pod that is deleted while an ender ends it reports its final status first, and the end of its removal later.
func TestAVictimInQuarantineIsDeleted(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	n.Send(messages.Pods, messages.ChildQuarantined{Name: "bb", Reason: "panic"})
	wants(n.Kit, messages.APIServer, crowded()...)
	n.RunWork()
	n.Send(messages.Pods, messages.ChildStopped{Name: "bb"})
	all := crowded()
	bb := all[1].DeepCopy()
	bb.DeletionTimestamp = &metav1.Time{Time: n.Clock.Now()}
	all[1] = bb
	wants(n.Kit, messages.APIServer, all...)
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	n.RunWork()
	if w := n.desired("bb"); w.Final == nil || w.Final.Phase != v1.PodFailed || w.Final.Reason != messages.ReasonPreempting {
		t.Errorf("the ender is told %+v", w)
	}
	before := len(n.Stopped)
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb", Gone: true, Status: &v1.PodStatus{Phase: v1.PodSucceeded}})
	if !slices.Equal(n.Stopped[before:], []string{"bb"}) {
		t.Fatalf("stopped are %v", n.Stopped)
	}
	n.Send(messages.Pods, messages.ChildStopped{Name: "bb"})
	if w := n.desired("bb"); w.Ending == nil || w.Final == nil || w.Final.Phase != v1.PodFailed {
		t.Errorf("its actor is told %+v", w)
	}
}

// A second eviction shortens the grace period, never extends it, and keeps the first reason. It is sent when it is on disk, and
// outlives the agent.
func TestAnEvictedPodIsGivenLessTime(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	pod := asking("a", 300)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
	wants(n.Kit, messages.APIServer, pod)
	n.RunWork()
	evict := func(reason string, grace *int64) {
		n.Send(messages.Eviction, messages.EvictPod{UID: "a", Failure: messages.PodFailure{Reason: reason, Message: "low", Grace: grace}})
	}
	evict(messages.EventEvicted, nil)
	n.RunWork()
	n.Take()
	evict("Another", new(int64(61)))
	evict("Another", nil)
	n.RunWork()
	if got := sent[messages.PodWanted](n.Kit); len(got) > 0 {
		t.Errorf("nothing is less, and it is told %+v", got)
	}
	evict("Another", new(int64(5)))
	if got := sent[messages.PodWanted](n.Kit); len(got) > 0 {
		t.Errorf("before it is on the disk it is told %+v", got)
	}
	n.RunWork()
	evict("Another", new(int64(7)))
	n.RunWork()
	for _, when := range []string{"at once", "in the next life of the agent"} {
		if fail := n.desired("a").Fail; fail == nil || fail.Reason != "Evicted" || fail.Grace == nil || *fail.Grace != 5 {
			t.Errorf("%s: %+v", when, fail)
		}
		n.life()
		n.known("a")
		wants(n.Kit, messages.APIServer, pod)
	}
}

// An eviction is sent to the pod when it is on disk, with its grace period. An ending pod does not change.
func TestAnEvictionEndsAPod(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 300), asking("bb", 100))
	n.RunWork()
	n.Take()
	why := messages.PodFailure{Reason: messages.EventEvicted, Message: "low", Disruption: "low", Grace: new(int64(1)),
		Annotations: map[string]string{"starved_resource": "memory"}}
	n.Send(messages.Eviction, messages.EvictPod{UID: "a", Failure: why})
	if got := sent[messages.RecordEvent](n.Kit); len(got) != 1 || got[0].Annotations["starved_resource"] != "memory" {
		t.Errorf("the event is %+v", got)
	}
	n.Send(messages.Eviction, messages.EvictPod{UID: "a", Failure: messages.PodFailure{Reason: "Another"}})
	n.Send(messages.Eviction, messages.EvictPod{UID: "of nobody", Failure: why})
	n.RunWork()
	if fail := n.desired("a").Fail; fail == nil || fail.Reason != "Evicted" || fail.Grace == nil || *fail.Grace != 1 {
		t.Errorf("%+v", fail)
	}
	if n.desired("bb").Fail != nil {
		t.Error("another pod is ended, too")
	}
	n.life() // the agent is killed
	n.known("a", "bb")
	wants(n.Kit, messages.APIServer, asking("a", 300), asking("bb", 100))
	if fail := n.desired("a").Fail; fail == nil || fail.Reason != "Evicted" || fail.Grace == nil || *fail.Grace != 1 {
		t.Errorf("in its next life %+v", fail)
	}
	n.Send(messages.PodAddress("a"), messages.PodEnded{UID: "a", Status: &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}})
	n.RunWork()
	n.Send(messages.Eviction, messages.EvictPod{UID: "a", Failure: why})
	if w := n.desired("a"); w.Final == nil || w.Final.Reason != "Evicted" {
		t.Errorf("%+v", w)
	}
}

// A victim whose object is removed, and whose actor fails before its first status, gets a record for its ender all the same.
func TestVictim_EndsWithoutAnyStatus(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, crowded()[:2]...)
	wants(n.Kit, messages.APIServer, crowded()...)
	n.RunWork()
	wants(n.Kit, messages.APIServer, append(crowded()[:1:1], crowded()[2:]...)...)
	n.Send(messages.Pods, messages.ChildQuarantined{Name: "bb", Reason: "panic"})
	n.Send(messages.Pods, messages.ChildStopped{Name: "bb"})
	n.spawned("a", "bb", "ender bb")
	n.Send(messages.PodAddress("bb"), messages.PodEnded{UID: "bb"})
	n.RunWork()
	if w := n.desired("bb"); w.Final == nil || w.Unkept || w.Final.Phase != v1.PodFailed {
		t.Errorf("the ender waits for a record, and is told %+v", w)
	}
}
