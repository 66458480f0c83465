package cpus

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

func TestParseOptions(t *testing.T) {
	for _, c := range []struct {
		values  map[string]string
		enabled string // gates
		want    Options
		err     string
	}{
		{nil, "", Options{}, ""},
		{map[string]string{"full-pcpus-only": "true", "strict-cpu-reservation": "1", "prefer-align-cpus-by-uncorecache": "t"}, "",
			Options{FullCores: true, Strict: true, AlignCaches: true}, ""},
		{map[string]string{"distribute-cpus-across-numa": "true"}, "Beta", Options{AcrossNodes: true}, ""},
		{map[string]string{"distribute-cpus-across-numa": "true"}, "", Options{},
			`CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided`},
		{map[string]string{"align-by-socket": "false"}, "", Options{},
			`CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided`},
		{map[string]string{"align-by-socket": "true"}, "Alpha", Options{BySocket: true}, ""},
		{map[string]string{"best": "true"}, "", Options{}, `unknown CPU Manager Policy option: "best"`},
		{map[string]string{"full-pcpus-only": "yes"}, "", Options{}, `bad value for option "full-pcpus-only"`},
		{map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"}, "Alpha",
			Options{}, "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"},
		{map[string]string{"full-pcpus-only": "false", "distribute-cpus-across-cores": "true"}, "Alpha",
			Options{AcrossCores: true}, ""},
	} {
		got, err := ParseOptions(c.values, func(stage string) bool { return stage == c.enabled })
		if fails := err != nil; fails != (c.err != "") || fails && !strings.Contains(err.Error(), c.err) || got != c.want {
			t.Errorf("%v: got %+v, %v; want %+v, %q", c.values, got, err, c.want, c.err)
		}
	}
}

func TestDiscover(t *testing.T) {
	machine := &cadvisor.MachineInfo{Topology: []cadvisor.Node{
		{Id: 0, Cores: []cadvisor.Core{{Id: 0, Threads: []int{4, 0}, UncoreCaches: []cadvisor.Cache{{Id: 7}}}}},
		{Id: 1, Cores: []cadvisor.Core{{Id: 0, Threads: []int{1}, SocketID: 1}}},
	}}
	got, err := Discover(machine)
	want := Topology{0: {Cache: 7}, 4: {Cache: 7}, 1: {Node: 1, Socket: 1, Core: 1, Cache: 1}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	machine.Topology[1].Cores[0].Threads = []int{4}
	if _, err := Discover(machine); err == nil {
		t.Error("a CPU of two cores is accepted")
	}
	if _, err := Discover(&cadvisor.MachineInfo{}); err == nil {
		t.Error("a machine without CPUs is accepted")
	}
}

func newStatic(t interface{ Fatal(...any) }, top Topology, reserved cpuset.CPUSet, count int, o Options) Static {
	p, err := NewStatic(top, reserved, count, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewStatic(t *testing.T) {
	single := shape{1, 1, 1, 4, 2}.topology()
	p := newStatic(t, single, cpuset.CPUSet{}, 2, Options{Strict: true})
	if p.Reserved().String() != "0,4" || p.Allocatable().String() != "1-3,5-7" || p.Shared(nil).String() != "1-3,5-7" {
		t.Errorf("reserved %s, allocatable %s, shared %s", p.Reserved(), p.Allocatable(), p.Shared(nil))
	}
	if p := newStatic(t, single, cpuset.New(1, 2, 3), 1, Options{}); p.Reserved().String() != "1-3" || p.Shared(nil).Size() != 8 {
		t.Errorf("reserved %s, shared %s", p.Reserved(), p.Shared(nil))
	}
	for want, err := range map[string]error{
		"to be greater than zero":      errorOf(NewStatic(single, cpuset.CPUSet{}, 0, Options{})),
		"did not equal 9":              errorOf(NewStatic(single, cpuset.CPUSet{}, 9, Options{})),
		"reserved CPUs 8 do not exist": errorOf(NewStatic(single, cpuset.New(0, 8), 0, Options{})),
		"align-by-socket":              errorOf(NewStatic(twoInOne(), cpuset.CPUSet{}, 1, Options{BySocket: true})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func errorOf(_ Static, err error) error { return err }

// container returns a container that requests and is limited to a number of CPUs.
func container(name string, cpu string) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi")}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
}

// newPod returns a Guaranteed pod. Each container is a kind (init, sidecar, app) and its CPUs, such as "init 2".
func newPod(uid string, containers ...string) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID = types.UID(uid)
	always := v1.ContainerRestartPolicyAlways
	for i, text := range containers {
		kind, cpu, _ := strings.Cut(text, " ")
		c := container(fmt.Sprintf("%s%d", kind, i), cpu)
		switch kind {
		case "sidecar":
			c.RestartPolicy = &always
			fallthrough
		case "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func TestAllocate(t *testing.T) {
	single := shape{1, 1, 1, 4, 2}.topology()
	burstable := newPod("u", "app 1")
	burstable.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	podLevel := newPod("u", "app 1")
	podLevel.Spec.Resources = &podLevel.Spec.Containers[0].Resources
	for _, c := range []struct {
		about  string
		pod    *v1.Pod
		o      Options
		want   string // by container
		shared string
		err    Refusal
	}{
		{"one CPU", newPod("u", "app 1"), Options{}, "app0=4", "0-3,5-7", Refusal{}},
		{"a fraction", newPod("u", "app 1500m"), Options{}, "", "0-7", Refusal{}},
		{"burstable", burstable, Options{}, "", "0-7", Refusal{}},
		{"resources of the pod", podLevel, Options{}, "", "0-7", Refusal{}},
		{"an init container's CPUs are used again", newPod("u", "init 4", "app 2", "app 2"), Options{},
			"app1=1,5 app2=2,6 init0=1-2,5-6", "0,3-4,7", Refusal{}},
		{"a sidecar keeps its CPUs", newPod("u", "sidecar 2", "init 4", "app 2"), Options{},
			"app2=2,6 init1=2-3,6-7 sidecar0=1,5", "0,4", Refusal{}},
		{"strictly reserved", newPod("u", "app 2"), Options{Strict: true}, "app0=1,5", "2-4,6-7", Refusal{}},
		{"full cores", newPod("u", "app 2"), Options{FullCores: true}, "app0=1,5", "0,2-4,6-7", Refusal{}},
		{"too many", newPod("u", "app 4", "app 4"), Options{}, "", "0-7",
			Refusal{Message: "not enough cpus available to satisfy request: requested=4, available=3", Container: "app1",
				Requested: 4, Others: 4}},
		{"half a core", newPod("u", "app 3"), Options{FullCores: true}, "", "0-7",
			Refusal{"SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", "app0", 3, 0}},
		{"too many cores", newPod("u", "app 8"), Options{FullCores: true}, "", "0-7", Refusal{"SMTAlignmentError",
			"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2",
			"app0", 8, 0}},
	} {
		p := newStatic(t, single, cpuset.New(0), 0, c.o)
		got, err := p.allocatePod(nil, c.pod)
		var refusal Refusal
		errors.As(err, &refusal)
		if show(got["u"]) != c.want || p.Shared(got).String() != c.shared || refusal != c.err {
			t.Errorf("%s: got %s, shared %s, %v; want %s, shared %s, %v", c.about, show(got["u"]), p.Shared(got), err, c.want,
				c.shared, c.err)
		}
		if again, _ := p.allocatePod(got, c.pod); show(again["u"]) != c.want {
			t.Errorf("%s: a second time %s", c.about, show(again["u"]))
		}
	}
}

// A static pod keeps its UID when its manifest changes. Containers with another request get other CPUs, and removed ones lose
// theirs; the others keep them.
func TestAllocate_ChangedRequest(t *testing.T) {
	p := newStatic(t, shape{1, 1, 1, 4, 2}.topology(), cpuset.New(0), 0, Options{})
	had, err := p.allocatePod(nil, newPod("u", "app 1", "app 2", "app 1"))
	if err != nil {
		t.Fatal(err)
	}
	kept := had["u"]["app0"]
	got, err := p.allocatePod(had, newPod("u", "app 1", "app 3"))
	if err != nil || len(got["u"]) != 2 || !got["u"]["app0"].Equals(kept) || got["u"]["app1"].Size() != 3 || p.Shared(got).Size() != 4 {
		t.Errorf("got %s of %s, shared %s, %v", show(got["u"]), show(had["u"]), p.Shared(got), err)
	}
	got, err = p.allocatePod(had, newPod("u", "app 9"))
	if err == nil || len(got["u"]) > 0 || p.Shared(got).Size() != 8 {
		t.Errorf("got %s after a refusal, shared %s, %v", show(got["u"]), p.Shared(got), err)
	}
	if len(had["u"]) != 3 {
		t.Errorf("the earlier assignments have changed: %s", show(had["u"]))
	}
}

// Siblings of reserved CPUs stay unused under full-pcpus-only, even where they would save a NUMA crossing.
func TestAllocate_FullCoresBesideReserved(t *testing.T) {
	p := newStatic(t, shape{2, 1, 1, 3, 2}.topology(), cpuset.New(0, 1), 0, Options{FullCores: true})
	g, err := p.allocatePod(nil, newPod("u", "app 4"))
	if err != nil || show(g["u"]) != "app0=3-4,9-10" {
		t.Fatalf("first pod: %s, %v", show(g["u"]), err)
	}
	if g, err = p.allocatePod(g, newPod("v", "app 4")); err != nil || show(g["v"]) != "app0=2,5,8,11" {
		t.Errorf("second pod: %s, %v", show(g["v"]), err)
	}
}

func show(has map[string]cpuset.CPUSet) string {
	text := fmt.Sprint(has) // sorted by name
	text = strings.NewReplacer("map[", "", "]", "", ":", "=").Replace(text)
	return text
}

func TestRestore(t *testing.T) {
	single := shape{1, 1, 1, 4, 2}.topology()
	given := func(set string) Assignments { return Assignments{"u": {"c": parse(t, set)}} }
	for _, c := range []struct {
		shared string
		given  Assignments
		strict bool
		want   string
	}{
		{"0-7", nil, false, ""},
		{"", nil, false, ""},
		{"0-3,5-7", given("4"), false, ""},
		{"1-3,5-7", given("4"), true, ""},
		{"", given("4"), false, "default cpuset cannot be empty"},
		{"", given("1-7"), true, ""},
		{"1-7", nil, false, `not all reserved cpus: "0" are present in defaultCpuSet: "1-7"`},
		{"0-7", nil, true, `some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-7"`},
		{"0-7", given("4"), false, `pod: u, container: c cpuset: "4" overlaps with default cpuset "0-7"`},
		{"0-9", nil, false, `current set of available CPUs "0-7" doesn't match with CPUs in state "0-9"`},
	} {
		err := newStatic(t, single, cpuset.New(0), 0, Options{Strict: c.strict}).Restore(parse(t, c.shared), c.given)
		if fails := err != nil; fails != (c.want != "") || fails && err.Error() != c.want {
			t.Errorf("%s and %v: error %v, want %q", c.shared, c.given, err, c.want)
		}
	}
}

// Over any sequence of admissions and removals, no CPU is exclusive in two pods or reserved, and each CPU is shared or exclusive.
func TestStatic_NoCPUIsGivenTwiceOrLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, o := drawTopology(t), drawOptions(t)
		if len(top) < 2 {
			t.Skip("one CPU: nothing is left to assign")
		}
		p := newStatic(t, top, cpuset.CPUSet{}, rapid.IntRange(1, len(top)-1).Draw(t, "reserved"), o)
		var g Assignments
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			uid := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "pod"))
			if _, held := g[uid]; held {
				g = g.Keep(func(other string) bool { return other != uid })
			} else {
				var spec []string
				for range rapid.IntRange(1, 4).Draw(t, "containers") {
					kind := rapid.SampledFrom([]string{"init", "sidecar", "app"}).Draw(t, "kind")
					spec = append(spec, fmt.Sprintf("%s %d", kind, rapid.IntRange(1, 4).Draw(t, "cpus")))
				}
				pod := newPod(uid, spec...)
				next, err := p.allocatePod(g, pod)
				if _, changed := next[uid]; changed == (err != nil) {
					t.Fatalf("pod %v: got %v with error %v", spec, next[uid], err)
				}
				g = next
				checkPod(t, pod, g[uid])
			}
			var sum int
			for _, has := range g {
				sum += Assignments{"": has}.All().Size()
			}
			all := g.All()
			if sum != all.Size() || !all.IsSubsetOf(p.Allocatable()) {
				t.Fatalf("%v: a CPU is given twice or reserved (%s)", g, p.Reserved())
			}
			if err := p.Restore(p.Shared(g), g); err != nil && !p.Shared(g).IsEmpty() {
				t.Fatalf("%v: %v", g, err)
			}
		}
	})
}

// checkPod fails if containers that run at the same time share a CPU, or one has another number than it requests.
func checkPod(t *rapid.T, pod *v1.Pod, has map[string]cpuset.CPUSet) {
	if has == nil {
		return
	}
	var lasting cpuset.CPUSet
	for i, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			set := has[c.Name]
			if set.Size() != Exclusive(pod, &c) {
				t.Fatalf("container %s has %s", c.Name, set)
			}
			if !set.Intersection(lasting).IsEmpty() {
				t.Fatalf("container %s has %s, and another one uses some of them: %v", c.Name, set, has)
			}
			if i == 1 || c.RestartPolicy != nil {
				lasting = lasting.Union(set)
			}
		}
	}
}
