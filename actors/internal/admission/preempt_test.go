package admission

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func limited(cpu, memory string) string {
	list := "{cpu: " + cpu + ", memory: " + memory + "}"
	return "containers: [{name: c, resources: {requests: " + list + ", limits: " + list + "}}]"
}

// As few as possible of those that were promised most.
func TestVictims(t *testing.T) {
	for name, c := range map[string]struct {
		others    map[string]string
		shortages []Shortage
		want      []string // nil: there are none that would do
	}{
		"best effort before burstable": {map[string]string{"best": "{}", "burst": asks("cpu: 1")}, []Shortage{{"pods", 1}},
			[]string{"best"}},
		"what covers it": {map[string]string{"small": asks("cpu: 100m"), "large": asks("cpu: 1")},
			[]Shortage{{"cpu", 500}}, []string{"large"}},
		"the smaller of two": {map[string]string{"large": asks("cpu: 1, memory: 1Gi"),
			"small": asks("cpu: 1, memory: 1Mi")}, []Shortage{{"cpu", 500}}, []string{"small"}},
		"burstable before guaranteed": {map[string]string{"burst": asks("cpu: 1"), "sure": limited("1", "1Gi")},
			[]Shortage{{"cpu", 500}}, []string{"burst"}},
		"guaranteed where it must be": {map[string]string{"burst": asks("cpu: 400m"), "sure": limited("1", "1Gi")},
			[]Shortage{{"cpu", 500}}, []string{"sure"}},
		"both": {map[string]string{"burst": asks("cpu: 400m"), "sure": limited("1", "1Gi")},
			[]Shortage{{"cpu", 1200}}, []string{"burst", "sure"}},
		"two resources": {map[string]string{"a": asks("cpu: 1"), "b": asks("memory: 1Gi"),
			"c": asks("cpu: 1, memory: 1Gi")}, []Shortage{{"cpu", 500}, {"memory", 1}}, []string{"c"}},
		"not enough": {map[string]string{"a": asks("cpu: 1")}, []Shortage{{"cpu", 1001}}, nil},
		"critical ones stay": {map[string]string{"crit": critical + asks("cpu: 1"), "stat": static + asks("cpu: 1")},
			[]Shortage{{"cpu", 1}}, nil},
		"nobody is there": {nil, []Shortage{{"cpu", 1}}, nil},
	} {
		var others []*Claim
		for name, text := range c.others {
			pod := aPod(t, text)
			pod.Name = name
			others = append(others, NewClaim(pod))
		}
		victims, ok := Victims(aPod(t, critical), others, c.shortages)
		var got []string
		for _, v := range victims {
			got = append(got, v.Pod.Name)
		}
		slices.Sort(got)
		if ok != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
}

func TestWhoMayPreempt(t *testing.T) {
	plain, low, high := aPod(t, "{}"), aPod(t, "priority: 2000000000"), aPod(t, "priority: 2000001000")
	fixed := aPod(t, static+"{}")
	for i, c := range []struct {
		pod, other *v1.Pod
		want       bool
	}{{low, plain, true}, {fixed, plain, true}, {plain, plain, false}, {plain, low, false}, {high, low, true}, {low, high, false},
		{low, low, false}, {fixed, low, false}} {
		if got := Preempts(c.pod, c.other); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func drawPod(t *rapid.T, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	requests := func(label string) v1.ResourceRequirements {
		r := v1.ResourceRequirements{Requests: v1.ResourceList{
			"cpu":    *resource.NewMilliQuantity(rapid.Int64Range(0, 1500).Draw(t, label+" cpu"), resource.DecimalSI),
			"memory": *resource.NewQuantity(rapid.Int64Range(0, 3).Draw(t, label+" memory"), resource.BinarySI),
		}}
		if rapid.Bool().Draw(t, label+" limited") {
			r.Limits = r.Requests
		}
		return r
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i),
			Resources: requests(fmt.Sprint("c", i))})
	}
	if rapid.Bool().Draw(t, "init") {
		c := v1.Container{Name: "i", Resources: requests("i")}
		if rapid.Bool().Draw(t, "sidecar") {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = []v1.Container{c}
	}
	if rapid.Bool().Draw(t, "critical") {
		priority := int32(2_000_000_000)
		pod.Spec.Priority = &priority
	}
	return pod
}

// Admitted pods never request more than the node has. A critical pod is admitted after the end of its victims.
func TestWhatIsAdmittedFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := &Node{Object: &v1.Node{}, Allocatable: v1.ResourceList{
			"cpu": resource.MustParse("3"), "memory": resource.MustParse("6"), "pods": resource.MustParse("6"),
		}}
		var there []*Claim
		for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
			claim := NewClaim(drawPod(t, fmt.Sprint("p", i)))
			refusal := Admit(node, NewLedger(there...), claim)
			if len(refusal.Shortages) > 0 {
				if victims, ok := Victims(claim.Pod, there, refusal.Shortages); ok {
					there = slices.DeleteFunc(there, func(c *Claim) bool { return slices.Contains(victims, c) })
					if refusal = Admit(node, NewLedger(there...), claim); refusal.Refused() {
						t.Fatalf("%s after %d were preempted", refusal.Message, len(victims))
					}
				}
			}
			if !refusal.Refused() {
				there = append(there, claim)
			}
			l := NewLedger(there...)
			if l.used["cpu"] > 3000 || l.used["memory"] > 6 || l.count > 6 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
