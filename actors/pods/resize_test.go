package pods

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pods/found"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// resized returns a later version of a pod, with a request of milli thousandths of a processor.
func resized(uid string, generation, milli int64) *v1.Pod {
	p := asking(uid, milli)
	p.Generation = generation
	return p
}

// has returns the allocation sent to a pod's actor, and the reason if it differs from the request.
func (n *node) has(uid string) (milli int64, pending string) {
	n.TB.Helper()
	m := n.desired(uid)
	if m.Pending != nil {
		pending = m.Pending.Reason + ": " + m.Pending.Message
	}
	return m.Pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), pending
}

func (n *node) expect(uid string, milli int64, pending string) {
	n.TB.Helper()
	if got, why := n.has(uid); got != milli || pending == "" != (why == "") || !strings.HasPrefix(why, pending) {
		n.TB.Errorf("%s has %d, and is told %q; want %d and %q", uid, got, why, milli, pending)
	}
}

// A resize is on disk before the pod's actor is informed. An agent that is killed in between completes it.
func TestAResizeIsKept(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	wants(n.Kit, messages.APIServer, asking("a", 300))
	n.expect("a", 300, "")
	if files, err := filepath.Glob(filepath.Join(n.path, "records", "*")); err != nil || len(files) > 0 {
		t.Errorf("of a pod that was never resized there is %v kept (%v)", files, err)
	}
	wants(n.Kit, messages.APIServer, resized("a", 2, 500))
	for _, m := range sent[messages.PodWanted](n.Kit) {
		if m.Pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 300 || m.Pod.Generation >= 2 || m.Resized {
			t.Errorf("before it is on the disk it is told generation %d of %+v", m.Pod.Generation, m.Pod.Spec.Containers)
		}
	}
	wants(n.Kit, messages.APIServer, resized("a", 2, 500)) // whatever arrives meanwhile
	n.Send(messages.PodAddress("a"), messages.GetDesired{UID: "a"})
	for _, m := range sent[messages.PodWanted](n.Kit) {
		if m.Pod.Generation >= 2 {
			t.Errorf("before it is on the disk it is told generation %d", m.Pod.Generation)
		}
	}
	n.RunWork()
	got := sent[messages.PodWanted](n.Kit)
	if len(got) != 1 || got[0].Pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 500 || !got[0].Resized {
		t.Fatalf("when it is on the disk it is told %+v", got)
	}
	n.life()
	n.known("a")
	wants(n.Kit, messages.APIServer, resized("a", 3, 5000), asking("bb", 600))
	n.expect("a", 500, v1.PodReasonInfeasible)
	if g := n.desired("a").Pod.Generation; g != 3 {
		t.Errorf("of a resize that is decided it is told generation %d", g)
	}
	if !n.desired("a").Resized || n.desired("bb").Final == nil {
		t.Error("what was allocated does not count against another pod")
	}
	wants(n.Kit, messages.APIServer)
	gone(n.Kit, "a", &v1.PodStatus{Phase: v1.PodSucceeded})
	if _, err := os.Stat(filepath.Join(n.path, "records", "a.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was allocated outlives the pod: %v", err)
	}
}

// A pod without a record has the resources that its containers carry or, if a kubelet created them, the reported ones.
func TestFoundContainer_HasResourcesOfCreation(t *testing.T) {
	list := v1.ResourceList{"cpu": *resource.NewMilliQuantity(200, resource.DecimalSI)}
	reported := resized("a", 2, 900)
	reported.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: list,
		Resources: &v1.ResourceRequirements{Requests: list}}}
	facts := &messages.PodFacts{Containers: []messages.ContainerFact{{Name: "c",
		Annotations: map[string]string{cri.AnnotationResources: `{"requests":{"cpu":"600m"}}`}}, {Name: "c"}}}
	for want, l := range map[int64]*podspec.Allocation{
		600: found.Allocation(reported, facts), 200: found.Allocation(reported, &messages.PodFacts{}),
		900: found.Allocation(resized("a", 2, 900), nil),
	} {
		if got := l.In(reported).Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got != want {
			t.Errorf("it has %d, want %d", got, want)
		}
	}
}

// A pod's own resources without a record are the ones that a container carries, or that a kubelet reported.
func TestWhatIsFoundOfAPodsOwnResources(t *testing.T) {
	list := func(milli int64) v1.ResourceList {
		return v1.ResourceList{"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	}
	asks := resized("a", 2, 100)
	asks.Spec.Resources = &v1.ResourceRequirements{Requests: list(900)}
	reported := asks.DeepCopy()
	reported.Status.Resources, reported.Status.AllocatedResources = &v1.ResourceRequirements{Requests: list(700)}, list(700)
	carries := &messages.PodFacts{Containers: []messages.ContainerFact{{Name: "c", Annotations: map[string]string{}}}}
	made := asks.DeepCopy()
	made.Spec.Resources.Requests = list(800)
	if err := translate.CarryMade(carries.Containers[0].Annotations, made, &made.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	for want, l := range map[int64]*podspec.Allocation{
		900: found.Allocation(asks, nil), 800: found.Allocation(reported, carries), 700: found.Allocation(reported, nil),
	} {
		if got := l.In(asks).Spec.Resources.Requests.Cpu().MilliValue(); got != want {
			t.Errorf("it has %d, want %d", got, want)
		}
	}
	none := resized("a", 2, 100) // it got its own after the container was created
	if err := translate.CarryMade(carries.Containers[0].Annotations, none, &none.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	if l := found.Allocation(none, carries); l != nil {
		t.Errorf("a pod without resources of its own is allocated %+v", l)
	}
	if l := found.Allocation(asks, carries); l == nil || l.Pod != nil {
		t.Errorf("resources that were added later are allocated: %+v", l)
	}
	memory := func(text string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Limits: v1.ResourceList{"memory": resource.MustParse(text)}, Requests: list(900)}
	}
	asks.Spec.Resources, asks.Status.Resources, asks.Status.AllocatedResources = memory("100M"), memory("99999744"), list(900)
	if l := found.Allocation(asks, nil); l != nil {
		t.Errorf("a limit that the kernel rounded is taken for another: %+v", l.Pod)
	}
}

// Pending resizes are reconsidered when other pods leave or shrink: by priority, then by waiting time.
func TestResizesThatWait(t *testing.T) {
	n := beginCluster(t, small())
	n.known()
	pods := []*v1.Pod{asking("a", 200), asking("bb", 200), asking("ccc", 200), asking("dddd", 400)}
	wants(n.Kit, messages.APIServer, pods...)
	n.RunWork()
	n.Take()
	change := func(i int, p *v1.Pod) {
		n.Advance(time.Second)
		pods[i] = p
		wants(n.Kit, messages.APIServer, pods...)
	}
	change(0, resized("a", 2, 500))
	events := sent[messages.RecordEvent](n.Kit)
	if len(events) != 1 || events[0].Reason != "ResizeDeferred" ||
		!strings.Contains(events[0].Message, "cpu, requested: 500, used: 800") {
		t.Errorf("events %+v", events)
	}
	change(1, resized("bb", 2, 500))
	first := resized("ccc", 2, 500)
	first.Spec.Priority = new(int32(7))
	change(2, first)
	for _, p := range pods[:3] {
		n.expect(string(p.UID), 200, v1.PodReasonDeferred)
	}
	change(3, resized("dddd", 2, 100)) // it returns resources
	n.expect("ccc", 500, "")
	n.expect("a", 200, v1.PodReasonDeferred)
	pods = pods[:3]
	wants(n.Kit, messages.APIServer, pods...) // the fourth begins to leave
	n.expect("a", 200, v1.PodReasonDeferred)
	gone(n.Kit, "dddd", &v1.PodStatus{Phase: v1.PodSucceeded})
	n.expect("bb", 200, v1.PodReasonDeferred)
	n.expect("a", 200, v1.PodReasonDeferred)
	change(2, resized("ccc", 3, 200))
	n.expect("a", 500, "")
	n.expect("bb", 200, v1.PodReasonDeferred)
	change(1, asking("bb", 200)) // it is withdrawn
	n.expect("bb", 200, "")
	ofA := func(e messages.RecordEvent) bool { return e.Object.UID == "a" }
	if got := sent[messages.RecordEvent](n.Kit); slices.ContainsFunc(got, ofA) {
		t.Errorf("it is told again and again: %+v", got)
	}
}

// An update that needs a feature which the node does not declare is recorded once, and judged like any other.
func TestAnUpdateNeedsAFeatureOfTheNode(t *testing.T) {
	const podLevel, initial = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"
	of := func(generation, podMilli, initMilli, sidecarMilli int64) *v1.Pod {
		list := func(milli int64) v1.ResourceList {
			return v1.ResourceList{"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI)}
		}
		p := resized("a", generation, 100)
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list(podMilli)}
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{
			{Name: "i", Resources: v1.ResourceRequirements{Requests: list(initMilli)}},
			{Name: "s", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list(sidecarMilli)}},
		}
		return p
	}
	for name, c := range map[string]struct {
		undeclared []string
		then       *v1.Pod
		missing    string
		infeasible bool
	}{
		"the pod's own resources": {[]string{podLevel, initial}, of(2, 500, 100, 100), podLevel, true},
		"an init container":       {[]string{podLevel, initial}, of(2, 400, 200, 100), initial, false},
		"both":                    {[]string{podLevel, initial}, of(2, 500, 200, 100), podLevel + ", " + initial, true},
		"a sidecar":               {[]string{podLevel, initial}, of(2, 400, 100, 200), "", false},
		"nothing":                 {[]string{podLevel, initial}, of(2, 400, 100, 100), "", false},
		"declared":                {nil, of(2, 500, 200, 100), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			here := small()
			here.Node.Undeclared, here.Node.PodLevelResize = c.undeclared, c.undeclared == nil
			n := beginCluster(t, here)
			n.known()
			wants(n.Kit, messages.APIServer, of(1, 400, 100, 100))
			n.RunWork()
			n.Take()
			wants(n.Kit, messages.APIServer, c.then)
			wants(n.Kit, messages.APIServer, c.then.DeepCopy())
			n.RunWork()
			var got []string
			for _, e := range sent[messages.RecordEvent](n.Kit) {
				if e.Reason == "FailedNodeDeclaredFeaturesCheck" {
					got = append(got, string(e.Type)+" "+string(e.Object.UID)+" "+e.Message)
				}
			}
			var want []string
			if c.missing != "" {
				want = []string{"Warning a Pod requires node features that are not available: " + c.missing}
			}
			if !slices.Equal(got, want) {
				t.Errorf("events %q, want %q", got, want)
			}
			m := n.desired("a")
			if infeasible := m.Pending != nil && m.Pending.Reason == v1.PodReasonInfeasible; infeasible != c.infeasible {
				t.Errorf("the resize that waits is %+v", m.Pending)
			}
		})
	}
}
