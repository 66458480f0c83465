package pods

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
)

// withGPU returns a pod of the API server that requests a device.
func withGPU(name, uid string) *v1.Pod {
	p := pod(name, uid)
	list := v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	p.Spec.Containers = []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}}
	return p
}

// holds reports whether a pod is among the holders of a request.
func holds(asked messages.AllocateResources, uid string) bool {
	_, ok := asked.Holding[uid]
	return ok
}

// answer sends an answer to the last request about a pod.
func (n *node) answer(m messages.ResourcesAllocated) {
	if e := n.actor.entries[m.UID]; e != nil {
		m.Pod = e.allocating.question
	}
	n.Send(messages.Resources, m)
}

// gpus returns a node with room for four pods, and an object without free devices.
func gpus(t *testing.T) *node {
	here := small()
	here.IsDevice = func(name v1.ResourceName) bool { return name == "example.com/gpu" }
	n := beginCluster(t, here)
	o := thisObject(nil)
	o.Status.Allocatable = v1.ResourceList{"example.com/gpu": resource.MustParse("0")}
	n.Send(messages.Registration, messages.NodeObserved{Node: o})
	return n
}

// A pod that requests a device waits for it, whichever message is lost, and does not report that; then it runs.
func TestAPodWaitsForItsDevices(t *testing.T) {
	n := gpus(t)
	audit(n.Kit)
	wants(n.Kit, messages.File)
	n.Take()
	wants(n.Kit, messages.APIServer, withGPU("web", "u"))
	all := n.Take()
	asked := ofType[messages.AllocateResources](all)
	if len(asked) != 1 || asked[0].UID != "u" || !asked[0].Heard || !holds(asked[0], "u") || len(n.Spawned) > 0 ||
		len(ofType[messages.PodStatusWanted](all)) > 0 {
		t.Fatalf("asked %+v, spawned %v", asked, n.Spawned)
	}
	wants(n.Kit, messages.APIServer, withGPU("web", "u"), pod("other", "o"))
	if again := sent[messages.AllocateResources](n.Kit); len(again) > 0 || !slices.Equal(n.Spawned, []string{"o"}) {
		t.Errorf("asked again %+v, spawned %v", again, n.Spawned)
	}
	n.Advance(allocateAgain)
	if again := sent[messages.AllocateResources](n.Kit); len(again) != 1 || !holds(again[0], "o") {
		t.Errorf("after the time for an answer: %+v", again)
	}
	n.answer(messages.ResourcesAllocated{UID: "u"})
	n.answer(messages.ResourcesAllocated{UID: "u"}) // each request has an answer
	n.answer(messages.ResourcesAllocated{UID: "gone"})
	if !slices.Equal(n.Spawned, []string{"o", "u"}) {
		t.Errorf("spawned %v", n.Spawned)
	}
}

// A pod that cannot get its devices fails, with the kubelet's message, and holds none; nor does one that ended.
func TestAPodThatCannotHaveItsDevices(t *testing.T) {
	n := gpus(t)
	audit(n.Kit)
	wants(n.Kit, messages.File)
	wants(n.Kit, messages.APIServer, withGPU("web", "u"))
	n.Take()
	n.answer(messages.ResourcesAllocated{UID: "u", Refused: "there are none"})
	said := sent[messages.PodStatusWanted](n.Kit)
	if len(said) == 0 {
		t.Fatal("nothing is told")
	}
	if s := said[len(said)-1].Status; s.Phase != v1.PodFailed || s.Reason != admission.ReasonUnexpected ||
		s.Message != "Pod was rejected: Allocate failed due to there are none, which is unexpected" {
		t.Errorf("told %+v", s)
	}
	wants(n.Kit, messages.APIServer, withGPU("web", "u"), withGPU("next", "v"))
	if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || asked[0].UID != "v" || holds(asked[0], "u") {
		t.Errorf("asked %+v", asked)
	}
}

// A static pod waits for its device plugin, then for the plugin's devices, and asks at once when there may be some; then it runs.
// A resource of an operator needs no plugin.
func TestAllocate_StaticPodsDevices(t *testing.T) {
	here, registered := small(), false
	here.IsDevice = func(name v1.ResourceName) bool { return registered && name == "example.com/gpu" }
	n := beginCluster(t, here)
	o := thisObject(nil)
	o.Status.Allocatable = v1.ResourceList{"example.com/dongle": resource.MustParse("1")}
	n.Send(messages.Registration, messages.NodeObserved{Node: o})
	audit(n.Kit)
	wants(n.Kit, messages.APIServer)
	counted := withGPU("counted", "c")
	counted.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/dongle": resource.MustParse("1")}
	wants(n.Kit, messages.File, static(withGPU("static", "s")), static(counted))
	asked := sent[messages.AllocateResources](n.Kit)
	if len(asked) != 1 || asked[0].UID != "c" {
		t.Errorf("asked %+v without a plugin", asked)
	}
	wait := n.waitsFor("s")
	if wait.Code != admission.ReasonUnexpected || wait.Cause.Code != messages.CauseNoDevicePlugin ||
		wait.Cause.Name != "example.com/gpu" {
		t.Errorf("the pod waits for %+v", wait)
	}
	registered = true
	n.Send(messages.Resources, messages.DevicesListed{})
	if asked = sent[messages.AllocateResources](n.Kit); len(asked) != 1 || asked[0].UID != "s" {
		t.Fatalf("got %d requests after the plugin's list, want the static pod's", len(asked))
	}
	cause := messages.Cause{Code: messages.CauseNoDevices, Name: "example.com/gpu", Detail: "none is healthy"}
	n.answer(messages.ResourcesAllocated{UID: "s", Refused: "no healthy devices present", Cause: cause})
	if wait = n.waitsFor("s"); wait.Cause != cause || wait.Message != "Allocate failed due to no healthy devices present, which is unexpected" {
		t.Errorf("the pod waits for %+v", wait)
	}
	n.Take()
	n.Send(messages.Resources, messages.DevicesListed{})
	if asked = sent[messages.AllocateResources](n.Kit); len(asked) == 0 {
		t.Error("not asked after another list")
	}
	n.answer(messages.ResourcesAllocated{UID: "s"})
	if !slices.Contains(n.Spawned, "s") {
		t.Errorf("spawned %v", n.Spawned)
	}
}

// If the plugin's list is not reported, the pod asks when its timeout ends.
func TestAllocate_StaticPodsDevicesLostList(t *testing.T) {
	here, registered := small(), false
	here.IsDevice = func(v1.ResourceName) bool { return registered }
	n := beginCluster(t, here)
	n.known()
	wants(n.Kit, messages.APIServer)
	wants(n.Kit, messages.File, static(withGPU("static", "s")))
	registered = true
	n.Take()
	n.Advance(allocateAgain)
	if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || asked[0].UID != "s" {
		t.Errorf("asked %+v", asked)
	}
}

// An ending pod holds its devices until none of its containers runs.
func TestAPodThatIsGoneHoldsNoDevices(t *testing.T) {
	n := gpus(t)
	audit(n.Kit)
	wants(n.Kit, messages.File)
	wants(n.Kit, messages.APIServer, pod("old", "o"))
	wants(n.Kit, messages.APIServer, withGPU("web", "u"))
	if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || !holds(asked[0], "o") {
		t.Errorf("asked %+v while it ends", asked)
	}
	gone(n.Kit, "o", &v1.PodStatus{Phase: v1.PodSucceeded})
	n.Advance(allocateAgain)
	if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || holds(asked[0], "o") {
		t.Errorf("asked %+v when it has gone", asked)
	}
}

// No devices are reclaimed before all sources have reported. A pod found running holds its devices without a request. One that
// ran before a restart of the machine fails if its devices are missing.
func TestFoundPodsHoldTheirDevices(t *testing.T) {
	n := gpus(t)
	runs := messages.PodFacts{UID: "adopted", Name: "adopted", Namespace: "default",
		Sandboxes: []messages.SandboxFact{{ID: "s", Ready: true}}}
	n.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: n.Now().Add(time.Millisecond), Pods: []messages.PodFacts{
		runs, {UID: "orphan", Name: "orphan", Namespace: "default", Sandboxes: runs.Sandboxes}}})
	before := withGPU("before", "b")
	before.Status.StartTime = &metav1.Time{Time: n.Now()}
	wants(n.Kit, messages.APIServer, withGPU("adopted", "adopted"), withGPU("web", "u"), before)
	asked := sent[messages.AllocateResources](n.Kit)
	slices.SortFunc(asked, func(x, y messages.AllocateResources) int { return strings.Compare(x.UID, y.UID) })
	if len(asked) != 2 || asked[0].UID != "b" || asked[1].UID != "u" || asked[1].Heard || !holds(asked[1], "orphan") ||
		!holds(asked[1], "adopted") || !holds(asked[1], "b") || !slices.Equal(n.Spawned, []string{"adopted"}) {
		t.Errorf("asked %+v, spawned %v", asked, n.Spawned)
	}
	n.answer(messages.ResourcesAllocated{UID: "b", Refused: "they are gone"})
	said := sent[messages.PodStatusWanted](n.Kit)
	if s := said[len(said)-1]; s.UID != "b" || s.Status.Reason != admission.ReasonUnexpected {
		t.Errorf("told %+v", s)
	}
}

// A pod that is Failed at the API server, and still runs, holds its claim until its actor reports the end.
func TestFailedPod_HoldsResourcesWhileItRuns(t *testing.T) {
	for name, ends := range map[string]func(*node){
		"is finished": func(n *node) {
			n.Send(messages.PodAddress("old"), messages.PodStatusChanged{UID: "old", Phase: "finished",
				Status: &v1.PodStatus{Phase: v1.PodFailed}})
		},
		"has ended": func(n *node) { n.Send(messages.PodAddress("old"), messages.PodEnded{UID: "old"}) },
	} {
		t.Run(name, func(t *testing.T) {
			n := gpus(t)
			n.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: n.Now().Add(time.Millisecond), Pods: []messages.PodFacts{
				{UID: "old", Name: "old", Namespace: "default", Sandboxes: []messages.SandboxFact{{ID: "s", Ready: true}}}}})
			wants(n.Kit, messages.File)
			old := withGPU("old", "old")
			old.Status.Phase = v1.PodFailed
			others := []*v1.Pod{old, withGPU("web", "u"), pod("a", "a"), pod("b", "b"), pod("c", "c")} // one more than there is room for
			wants(n.Kit, messages.APIServer, others...)
			all := n.Take()
			if asked := ofType[messages.AllocateResources](all); len(asked) != 1 || !holds(asked[0], "old") {
				t.Error("its device is not held at first")
			}
			if !slices.ContainsFunc(ofType[messages.PodStatusWanted](all), func(s messages.PodStatusWanted) bool {
				return s.UID == "c" && s.Status != nil && s.Status.Reason == "OutOfpods"
			}) {
				t.Error("there is room for one more")
			}
			n.Send(messages.PodAddress("old"), messages.PodStatusChanged{UID: "old", Phase: "terminating", Status: &old.Status})
			n.Advance(allocateAgain)
			if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || !holds(asked[0], "old") {
				t.Error("its device is not held while it is ended")
			}
			ends(n)
			n.Advance(allocateAgain)
			if asked := sent[messages.AllocateResources](n.Kit); len(asked) != 1 || holds(asked[0], "old") {
				t.Error("its device is held when it has ended")
			}
		})
	}
}

// A pod that ran before a restart of the machine, and waits for its devices again, keeps its room.
func TestWaitingPod_HoldsItsRoomWithoutDevices(t *testing.T) {
	n := gpus(t)
	audit(n.Kit)
	wants(n.Kit, messages.File)
	before := withGPU("before", "u")
	before.Status.StartTime = &metav1.Time{Time: n.Now()}
	wants(n.Kit, messages.APIServer, before, pod("a", "a"), pod("b", "b"), pod("c", "c"), pod("d", "d"))
	n.answer(messages.ResourcesAllocated{UID: "u"})
	if !slices.Equal(n.Spawned, []string{"a", "b", "c", "d", "u"}) { // the fourth is refused
		t.Errorf("spawned %v", n.Spawned)
	}
	var refused []string
	for _, s := range sent[messages.PodStatusWanted](n.Kit) {
		if s.Status != nil && s.Status.Phase == v1.PodFailed {
			refused = append(refused, s.UID)
		}
	}
	if !slices.Equal(refused, []string{"d"}) {
		t.Errorf("refused %v", refused)
	}
}

// pinned returns a Guaranteed pod with a CPU to itself.
func pinned(name, uid string) *v1.Pod {
	p := pod(name, uid)
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Mi")}
	p.Spec.Containers = []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}}
	return p
}

// exclusive returns a node with the static policy of the CPU manager.
func exclusive(t *testing.T) *node {
	here := small()
	here.Allocatable, here.Node.StaticCPUs = nil, true
	n := beginCluster(t, here)
	n.known()
	return n
}

// A pod with CPUs to itself waits for them. Of the API server it fails with the reason of the refusal; a static pod waits, and
// asks again. Without the static policy neither asks.
func TestAllocate_ExclusiveCPUs(t *testing.T) {
	n := exclusive(t)
	wants(n.Kit, messages.File, static(pinned("static", "s")), pod("shared", "o"))
	wants(n.Kit, messages.APIServer, pinned("web", "u"))
	asked := sent[messages.AllocateResources](n.Kit)
	if len(asked) != 2 || asked[0].Holding["o"] != "default/shared" || !slices.Equal(n.Spawned, []string{"o"}) {
		t.Fatalf("asked %+v, spawned %v", asked, n.Spawned)
	}
	cause := messages.Cause{Code: messages.CauseNoCPUs, Detail: "none are free"}
	n.answer(messages.ResourcesAllocated{UID: "u", Refused: "it has threads", Reason: "SMTAlignmentError"})
	n.answer(messages.ResourcesAllocated{UID: "s", Refused: "there are none", Cause: cause})
	if got := n.waits("s"); got != admission.ReasonUnexpected {
		t.Errorf("the static pod waits for %q", got)
	}
	all := n.Take()
	var told *v1.PodStatus
	for _, s := range ofType[messages.PodStatusWanted](all) {
		if s.UID == "u" && s.Status != nil {
			told = s.Status
		}
	}
	if told == nil || told.Phase != v1.PodFailed || told.Reason != "SMTAlignmentError" || told.Message != "Pod was rejected: it has threads" {
		t.Errorf("got status %+v", told)
	}
	if again := ofType[messages.AllocateResources](all); len(again) > 0 {
		t.Errorf("asked again at once: %+v", again)
	}
	n.Advance(allocateAgain)
	if again := sent[messages.AllocateResources](n.Kit); len(again) != 1 || again[0].UID != "s" || holds(again[0], "u") {
		t.Errorf("asked %+v after a while", again)
	}
	n.answer(messages.ResourcesAllocated{UID: "s"})
	if !slices.Contains(n.Spawned, "s") {
		t.Errorf("spawned %v", n.Spawned)
	}
	n = beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.File, static(pinned("static", "s")))
	if asked := sent[messages.AllocateResources](n.Kit); len(asked) > 0 {
		t.Errorf("asked %+v without the static policy", asked)
	}
}

// A static pod whose manifest has changed keeps its UID. Its CPUs are released at its end, and it asks again.
func TestAllocate_ChangedManifest(t *testing.T) {
	n := exclusive(t)
	wants(n.Kit, messages.APIServer)
	wants(n.Kit, messages.File, static(pinned("static", "s")))
	n.answer(messages.ResourcesAllocated{UID: "s"})
	wants(n.Kit, messages.File)
	wants(n.Kit, messages.File, static(pinned("static", "s")))
	n.Take()
	gone(n.Kit, "s", &v1.PodStatus{Phase: v1.PodSucceeded})
	released, asked := false, false
	for _, m := range n.Take() {
		switch m := m.Msg.(type) {
		case messages.ResourcesHeld:
			_, holds := m.Holding["s"]
			released = released || !holds
		case messages.AllocateResources:
			if !released {
				t.Error("asked for CPUs before the ones of its earlier life are released")
			}
			asked = true
		}
	}
	if !asked {
		t.Error("the changed pod has not asked for CPUs")
	}
}

// An answer about another manifest of the pod, or about an earlier life, does not start it.
func TestAllocate_OldAnswers(t *testing.T) {
	same := static(pinned("web", "u"))
	for name, change := range map[string]func(*node){
		"another manifest": func(n *node) {
			p := pinned("web", "u")
			two := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Mi")}
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: two, Requests: two}
			wants(n.Kit, messages.File, static(p))
		},
		"another life of the same object": func(n *node) {
			wants(n.Kit, messages.File)
			wants(n.Kit, messages.File, same)
		},
		"another life": func(n *node) {
			wants(n.Kit, messages.File)
			wants(n.Kit, messages.File, static(pinned("web", "u")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := exclusive(t)
			wants(n.Kit, messages.APIServer)
			n.Take()
			wants(n.Kit, messages.File, same)
			first := sent[messages.AllocateResources](n.Kit)
			change(n)
			second := sent[messages.AllocateResources](n.Kit)
			if len(first) != 1 || len(second) != 1 {
				t.Fatalf("got %d and %d requests, want 1 and 1", len(first), len(second))
			}
			n.Send(messages.Resources, messages.ResourcesAllocated{UID: "u", Pod: first[0].Pod})
			if len(n.Spawned) > 0 {
				t.Error("started with the answer to an older request")
			}
			n.Send(messages.Resources, messages.ResourcesAllocated{UID: "u", Pod: second[0].Pod})
			if !slices.Equal(n.Spawned, []string{"u"}) {
				t.Errorf("spawned %v after the answer to the last request", n.Spawned)
			}
		})
	}
}

// A change that concerns no resources, e.g. of a label, keeps the request open.
func TestAllocate_ChangedLabels(t *testing.T) {
	n := exclusive(t)
	wants(n.Kit, messages.APIServer, pinned("web", "u"))
	wants(n.Kit, messages.File)
	first := sent[messages.AllocateResources](n.Kit)
	changed := pinned("web", "u")
	changed.Labels = map[string]string{"changed": "yes"}
	wants(n.Kit, messages.APIServer, changed)
	if again := sent[messages.AllocateResources](n.Kit); len(first) != 1 || len(again) > 0 {
		t.Fatalf("got %d requests, and %d after the change", len(first), len(again))
	}
	n.Send(messages.Resources, messages.ResourcesAllocated{UID: "u", Pod: first[0].Pod})
	if !slices.Equal(n.Spawned, []string{"u"}) {
		t.Errorf("spawned %v", n.Spawned)
	}
}

// The holders are sent when a pod has ended, and with each sweep, but not before every source has reported.
func TestResourcesHeld(t *testing.T) {
	n := exclusive(t)
	wants(n.Kit, messages.File, pod("a", "a"), pod("b", "b"))
	n.Advance(sweepEvery)
	if held := sent[messages.ResourcesHeld](n.Kit); len(held) > 0 {
		t.Errorf("sent %+v while a source is silent", held)
	}
	wants(n.Kit, messages.APIServer)
	n.Take()
	wants(n.Kit, messages.File, pod("b", "b"))
	if held := sent[messages.ResourcesHeld](n.Kit); len(held) > 0 {
		t.Errorf("sent %+v while the pod is ending", held)
	}
	gone(n.Kit, "a", &v1.PodStatus{Phase: v1.PodSucceeded})
	held := sent[messages.ResourcesHeld](n.Kit)
	if len(held) == 0 || len(held[0].Holding) != 1 || held[0].Holding["b"] != "default/b" {
		t.Errorf("sent %+v after the end of a pod", held)
	}
	n.Send(messages.PodAddress("b"), messages.PodStatusChanged{UID: "b", Phase: "finished", Status: &v1.PodStatus{Phase: v1.PodFailed}})
	if held = sent[messages.ResourcesHeld](n.Kit); len(held) == 0 || len(held[0].Holding) > 0 {
		t.Errorf("sent %+v after the last pod has failed", held)
	}
	n.Advance(sweepEvery)
	if held = sent[messages.ResourcesHeld](n.Kit); len(held) != 1 {
		t.Errorf("sent %+v with the sweep", held)
	}
}
