package resources

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups/cgroupstest"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// node is an actor with cgroups in memory.
type node struct {
	*supervisortest.Kit
	groups *cgroupstest.Memory
	ops    *cri.Operations
	actor  supervisors.Actor

	foreign  func(uid string) bool
	settings cgroups.Settings
}

func newNode(t testing.TB) *node {
	n := &node{groups: cgroupstest.New(), ops: cri.NewOperations()}
	n.restart(t)
	return n
}

// restart replaces the actor; cgroups and operations stay.
func (n *node) restart(t testing.TB) {
	tree := &cgroups.Tree{
		Groups: n.groups, Settings: n.settings, Systemd: func() bool { return false }, Pause: time.Microsecond,
		Capacity: func() (cgroups.Capacity, error) { return cgroups.Capacity{MilliCPU: 2000, Memory: 1 << 30}, nil },
	}
	n.actor = New(Options{Tree: tree, Operations: n.ops, Foreign: func(uid string) bool {
		return n.foreign != nil && n.foreign(uid)
	}})("resources")
	n.Kit = supervisortest.New(t, messages.Resources, n.actor)
}

// ask sends a message as a pod would, does all work, and returns the answers to pods.
func (n *node) ask(uid string, msg any) []any {
	n.Send(messages.PodAddress(uid), msg)
	return n.work()
}

func (n *node) work() (sent []any) {
	n.RunWork()
	for _, m := range n.Take() {
		sent = append(sent, m.Msg)
	}
	return sent
}

func (n *node) sweep(heard bool, pods ...*v1.Pod) []any {
	m := messages.PodCgroupsWanted{UIDs: map[string]bool{}, Heard: heard, Active: map[string]*v1.Pod{}}
	for _, p := range pods {
		m.UIDs[string(p.UID)], m.Active[string(p.UID)] = true, p
	}
	n.Send(messages.Pods, m)
	return n.work()
}

// there returns the cgroups of pods.
func (n *node) there() (out []string) {
	for at := range n.groups.Values() {
		if strings.Contains(at, "/pod") {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

func podOf(uid string, cpu string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
	return p
}

func ensure(p *v1.Pod) messages.EnsurePodCgroup {
	return messages.EnsurePodCgroup{UID: string(p.UID), Pod: p}
}

func TestAPodsGroupFromStartToFinish(t *testing.T) {
	n := newNode(t)
	p := podOf("u", "1")
	at := "/kubepods/burstable/podu"
	ready := []any{messages.PodCgroupReady{UID: "u", Pod: p, Parent: at}}
	for range 2 {
		if got := n.ask("u", ensure(p)); !reflect.DeepEqual(got, ready) || !slices.Equal(n.there(), []string{at}) {
			t.Fatalf("told %+v, there are %v", got, n.there())
		}
	}
	if got := n.groups.Values()["/kubepods/burstable"].CPUShares; got != 1024 {
		t.Errorf("burstable pods weigh %d", got)
	}
	n.restart(t)
	changed := podOf("u", "2")
	if got := n.ask("u", ensure(changed)); !reflect.DeepEqual(got,
		[]any{messages.PodCgroupReady{UID: "u", Pod: changed, Parent: at}}) {
		t.Fatalf("told %+v", got)
	}
	for path, want := range map[string]uint64{at: 2048, "/kubepods/burstable": 2048} {
		if got := n.groups.Values()[path].CPUShares; got != want {
			t.Errorf("%s weighs %d, want %d", path, got, want)
		}
	}
	n.groups.Put(at, 4711) // a process that the runtime left
	for range 2 {
		if got := n.ask("u", messages.RemovePodCgroup{UID: "u"}); !reflect.DeepEqual(got,
			[]any{messages.PodCgroupRemoved{UID: "u"}}) || len(n.there()) > 0 {
			t.Errorf("told %+v, there are %v", got, n.there())
		}
	}
	n.sweep(true)
	if got := n.groups.Values()["/kubepods/burstable"].CPUShares; got != 2 {
		t.Errorf("without pods, burstable ones weigh %d", got)
	}
}

func TestPodCgroup_RetriedAfterFailure(t *testing.T) {
	for _, first := range []string{"node", "pod"} {
		t.Run(first, func(t *testing.T) {
			n := newNode(t)
			if first == "pod" {
				n.sweep(false)
			}
			n.groups.Fail(errors.New("no room"))
			p := podOf("u", "1")
			got := n.ask("u", ensure(p))
			if len(got) != 1 {
				t.Fatalf("told %+v", got)
			}
			reason := got[0].(messages.PodCgroupFailed).Reason
			if reason.Code != "FailedCreatePodContainer" || !strings.Contains(reason.Message, "no room") ||
				!reason.RetryAt.Equal(n.Now().Add(time.Second)) {
				t.Errorf("the reason is %+v", reason)
			}
			if again := n.ask("u", ensure(p)); !reflect.DeepEqual(again, got) {
				t.Errorf("asked again, it is told %+v", again)
			}
			n.Advance(time.Second)
			if again := n.work(); len(again) != 1 ||
				!again[0].(messages.PodCgroupFailed).Reason.RetryAt.Equal(n.Now().Add(2*time.Second)) {
				t.Errorf("the second time it is told %+v", again)
			}
			n.groups.Fail(nil)
			n.Advance(2 * time.Second)
			if again := n.work(); len(again) != 1 || again[0].(messages.PodCgroupReady).Pod != p {
				t.Errorf("when it can be made, it is told %+v", again)
			}
		})
	}
}

// A cgroup that cannot be removed does not delay its pod; the removal is retried without a request.
func TestAGroupThatStaysIsReported(t *testing.T) {
	n := newNode(t)
	p := podOf("u", "1")
	n.ask("u", ensure(p))
	n.groups.Fail(errors.New("busy"))
	for range 2 {
		got := n.ask("u", messages.RemovePodCgroup{UID: "u"})
		if len(got) != 1 || !strings.Contains(got[0].(messages.PodCgroupRemoved).Left, "busy") {
			t.Errorf("told %+v", got)
		}
	}
	n.groups.Fail(nil)
	n.Advance(time.Second)
	if sent := n.work(); len(sent) > 0 || len(n.there()) > 0 {
		t.Errorf("told %+v, there are %v", sent, n.there())
	}
}

// Desired state that changes during an operation is applied after it, in any order.
func TestTheLastWordCounts(t *testing.T) {
	p, q := podOf("u", "1"), podOf("u", "2")
	remove := messages.RemovePodCgroup{UID: "u"}
	for _, c := range []struct {
		name  string
		asks  []any
		there int
	}{
		{"made, not wanted", []any{ensure(p), remove}, 0},
		{"made, not wanted, wanted", []any{ensure(p), remove, ensure(q)}, 1},
		{"removed, wanted", []any{remove, ensure(p)}, 1},
		{"removed, wanted, not wanted", []any{remove, ensure(p), remove}, 0},
		{"made, changed", []any{ensure(p), ensure(q)}, 1},
	} {
		n := newNode(t)
		n.sweep(false)
		for _, m := range c.asks {
			n.Send(messages.PodAddress("u"), m)
		}
		sent := n.work()
		if len(n.there()) != c.there || len(sent) == 0 {
			t.Errorf("%s: there are %v, told %+v", c.name, n.there(), sent)
			continue
		}
		switch last := sent[len(sent)-1].(type) {
		case messages.PodCgroupReady:
			if c.there == 0 || last.Pod != c.asks[len(c.asks)-1].(messages.EnsurePodCgroup).Pod {
				t.Errorf("%s: told %+v", c.name, sent)
			}
		case messages.PodCgroupRemoved:
			if c.there > 0 {
				t.Errorf("%s: told %+v", c.name, sent)
			}
		}
	}
}

// Orphaned cgroups are removed, with their processes, but only after every source was read, and never one just requested by a
// pod.
func TestTheSweepRemovesWhatNobodyWants(t *testing.T) {
	n := newNode(t)
	n.groups.Put("/kubepods/burstable/podorphan", 7)
	n.groups.Put("/kubepods/other")
	wanted, fresh := podOf("wanted", "1"), podOf("fresh", "1")
	n.ask("wanted", ensure(wanted))
	n.ask("fresh", ensure(fresh))
	n.sweep(false, wanted)
	if got := n.there(); len(got) != 3 {
		t.Errorf("before all is heard there are %v", got)
	}
	n.sweep(true, wanted)
	if got := n.there(); !slices.Equal(got, []string{"/kubepods/burstable/podfresh", "/kubepods/burstable/podwanted"}) {
		t.Errorf("there are %v", got)
	}
	n.sweep(true, wanted) // twice left out: the pod is gone without a message
	if got := n.there(); !slices.Equal(got, []string{"/kubepods/burstable/podwanted"}) {
		t.Errorf("there are %v", got)
	}
	if _, ok := n.groups.Values()["/kubepods/other"]; !ok {
		t.Error("what is no pod's was removed")
	}
}

// Without cgroups per pod, pods do not wait for one.
func TestWithoutGroups(t *testing.T) {
	actor := New(Options{Parent: func() string { return "kubepods.slice" }})("resources")
	n := &node{Kit: supervisortest.New(t, messages.Resources, actor), actor: actor}
	p := podOf("u", "1")
	if got := n.ask("u", ensure(p)); !reflect.DeepEqual(got,
		[]any{messages.PodCgroupReady{UID: "u", Pod: p, Parent: "kubepods.slice"}}) {
		t.Errorf("told %+v", got)
	}
	if got := n.ask("u", messages.RemovePodCgroup{UID: "u"}); !reflect.DeepEqual(got,
		[]any{messages.PodCgroupRemoved{UID: "u"}}) {
		t.Errorf("told %+v", got)
	}
	if got := n.sweep(true); len(got) > 0 {
		t.Errorf("told %+v", got)
	}
}

// A cgroup of another agent's pod stays, with its processes.
func TestTheSweepLeavesAnotherAgentsPodsAlone(t *testing.T) {
	n := newNode(t)
	n.groups.Put("/kubepods/burstable/podtheirs", 7)
	n.foreign = func(uid string) bool { return uid == "theirs" }
	n.sweep(true)
	n.sweep(true)
	if got := n.there(); !slices.Equal(got, []string{"/kubepods/burstable/podtheirs"}) {
		t.Errorf("there are %v", got)
	}
}

// A pod's cgroup gets no memory limit below its usage: that is reported, and applied when usage falls.
func TestNoGroupIsLimitedBelowWhatItUses(t *testing.T) {
	n := newNode(t)
	p := podOf("u", "1")
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	at := "/kubepods/burstable/podu"
	n.groups.Use(at, 2<<20)
	got := n.ask("u", ensure(p))
	if failed, ok := got[0].(messages.PodCgroupFailed); !ok || !strings.Contains(failed.Reason.Message, "below current usage (2097152)") {
		t.Fatalf("told %+v", got)
	}
	n.groups.Use(at, 1<<20)
	n.Advance(time.Second)
	if got := n.work(); len(got) != 1 || n.groups.Values()[at].Memory != 1<<20 {
		t.Errorf("told %+v, it has %+v", got, n.groups.Values()[at])
	}
}

// A foreign cgroup that disappears does not delay any pod, and foreign changes to one stay.
func TestReservationsKeepNoPodWaiting(t *testing.T) {
	n := &node{groups: cgroupstest.New(), ops: cri.NewOperations(), settings: cgroups.Settings{Reservations: []cgroups.Reservation{{
		Setting: "kubeReserved", Group: "/daemons", Reserved: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
	}}}}
	n.restart(t)
	n.sweep(true, podOf("u", "1"))
	got := n.ask("u", ensure(podOf("u", "1")))
	if _, ok := got[0].(messages.PodCgroupReady); len(got) != 1 || !ok {
		t.Errorf("told %+v", got)
	}
	n.groups.Put("/daemons")
	n.Advance(reserveAgain)
	if n.work(); n.groups.Values()["/daemons"].Memory != 1<<30 {
		t.Errorf("the group has %+v", n.groups.Values()["/daemons"])
	}
	if err := n.groups.Apply(cgroups.ParseName("/daemons"), false, cgroups.Values{Memory: 2 << 30}); err != nil {
		t.Fatal(err)
	}
	n.sweep(true, podOf("u", "1"))
	n.Advance(reserveAgain)
	if n.work(); n.groups.Values()["/daemons"].Memory != 2<<30 {
		t.Errorf("the group has %+v", n.groups.Values()["/daemons"])
	}
}
