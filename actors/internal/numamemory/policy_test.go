package numamemory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

const gi = 1 << 30

// nodes returns a machine of NUMA nodes with 10 GiB each, 1 GiB of it in huge pages of 2 MiB.
func nodes(n int) (out []cadvisor.Node) {
	for id := range n {
		out = append(out, cadvisor.Node{Id: id, Memory: 10 * gi, HugePages: []cadvisor.HugePagesInfo{{PageSize: 2048, NumPages: 512}}})
	}
	return out
}

// reserve returns a reservation on a NUMA node.
func reserve(node int32, limits ...string) kubeletconfig.MemoryReservation {
	out := kubeletconfig.MemoryReservation{NumaNode: node, Limits: v1.ResourceList{}}
	for i := 0; i < len(limits); i += 2 {
		out.Limits[v1.ResourceName(limits[i])] = resource.MustParse(limits[i+1])
	}
	return out
}

// machine returns n nodes with 8 GiB of regular memory and 1 GiB of huge pages for containers each.
func machine(t *testing.T, n int) Machine {
	t.Helper()
	var reserved []kubeletconfig.MemoryReservation
	for id := range n {
		reserved = append(reserved, reserve(int32(id), "memory", "1Gi"))
	}
	m, err := Discover(nodes(n), reserved, *resource.NewQuantity(int64(n)*gi, resource.BinarySI))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newPod returns a Guaranteed pod; each container is "name memory" or "name memory hugepages", of an init container with the
// prefix "init:", of a sidecar with "side:".
func newPod(uid string, containers ...string) *v1.Pod {
	pod := &v1.Pod{}
	pod.UID, pod.Name = types.UID(uid), uid
	for _, text := range containers {
		f := strings.Fields(text)
		list := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse(f[1])}
		if len(f) > 2 {
			list["hugepages-2Mi"] = resource.MustParse(f[2])
		}
		kind, name, special := strings.Cut(f[0], ":")
		c := v1.Container{Name: kind, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
		if !special {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			continue
		}
		if c.Name = name; kind == "side" {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// allocate allocates to all containers of a pod.
func (p Static) allocate(g Assignments, pod *v1.Pod, hint topology.Result) (Assignments, error) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		var err error
		if g, err = p.Allocate(g, pod, &c, hint); err != nil {
			return g, err
		}
	}
	return g, nil
}

// show prints allocations as "container=type:size@nodes".
func show(pod map[string][]Block) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(pod)) {
		for _, b := range pod[name] {
			out = append(out, fmt.Sprintf("%s=%s:%s@%s", name, b.Type, bytes(b.Size), b.Nodes))
		}
	}
	return strings.Join(out, " ")
}

func TestDiscover(t *testing.T) {
	m := machine(t, 2)
	if got, want := m[1]["memory"], (Table{10 * gi, gi, 8 * gi}); got != want || m[0]["hugepages-2Mi"] != (Table{gi, 0, gi}) {
		t.Errorf("got %+v, want %+v; huge pages %+v", got, want, m[0]["hugepages-2Mi"])
	}
	for want, c := range map[string]struct {
		reserved []kubeletconfig.MemoryReservation
		withheld string
	}{
		"the sum of memory is 1Gi, and kubeReserved, systemReserved and the hard eviction threshold of the node reserve 1124Mi: make both equal": {
			[]kubeletconfig.MemoryReservation{reserve(0, "memory", "1Gi")}, "1124Mi"},
		"the sum of memory is 0, and": {nil, "1Gi"},
		"the sum of hugepages-2Mi is 4Mi, and kubeReserved, systemReserved and the hard eviction threshold of the node reserve 0": {
			[]kubeletconfig.MemoryReservation{reserve(0, "memory", "1Gi", "hugepages-2Mi", "4Mi")}, "1Gi"},
		"this machine has no NUMA node 2":                            {[]kubeletconfig.MemoryReservation{reserve(2, "memory", "1Gi")}, "1Gi"},
		"the policy needs memory that is reserved":                   {nil, "0"},
		"NUMA node 1 has 9Gi of memory, less than the reserved 10Gi": {[]kubeletconfig.MemoryReservation{reserve(1, "memory", "10Gi")}, "10Gi"},
	} {
		if _, err := Discover(nodes(2), c.reserved, resource.MustParse(c.withheld)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestStatic_Allocate(t *testing.T) {
	p := Static{machine(t, 4)}
	none := topology.Result{}
	on := func(preferred bool, nodes ...int) topology.Result {
		return topology.Result{Nodes: topology.MaskOf(nodes...), Preferred: preferred}
	}
	for about, c := range map[string]struct {
		before []*v1.Pod // with the nodes of their UID, such as "01"
		pod    *v1.Pod
		hint   topology.Result
		want   string // the allocations, or the error
	}{
		"the lowest node":                {nil, newPod("u", "app 2Gi 2Mi"), none, "app=hugepages-2Mi:2Mi@0 app=memory:2Gi@0"},
		"the node of the hint":           {nil, newPod("u", "app 2Gi"), on(true, 3), "app=memory:2Gi@3"},
		"a request for two nodes":        {nil, newPod("u", "app 9Gi"), none, "app=memory:9Gi@0 and 1"},
		"a hint that is too small":       {nil, newPod("u", "app 9Gi"), on(false, 1), "app=memory:9Gi@0 and 1"},
		"a preferred one":                {nil, newPod("u", "app 9Gi"), on(true, 1), "failed to find the extended preferred hint"},
		"a full node":                    {[]*v1.Pod{newPod("0", "a 7Gi")}, newPod("u", "app 2Gi"), none, "app=memory:2Gi@1"},
		"single nodes join no set":       {[]*v1.Pod{newPod("0", "a 1Gi")}, newPod("u", "app 9Gi"), none, "app=memory:9Gi@1 and 2"},
		"nodes of a set serve no others": {[]*v1.Pod{newPod("01", "a 9Gi")}, newPod("u", "app 1Gi"), none, "app=memory:1Gi@2"},
		"a set serves itself":            {[]*v1.Pod{newPod("01", "a 9Gi")}, newPod("u", "app 1Gi"), on(false, 0, 1), "app=memory:1Gi@0 and 1"},
		"a hint within a set":            {[]*v1.Pod{newPod("01", "a 9Gi")}, newPod("u", "app 1Gi"), on(false, 0), "app=memory:1Gi@0 and 1"},
		"a hint that breaks a set":       {[]*v1.Pod{newPod("01", "a 9Gi"), newPod("23", "a 9Gi")}, newPod("u", "app 1Gi"), on(false, 1, 2), "preferred hint violates NUMA node allocation"},
		"nothing is left": {[]*v1.Pod{newPod("0", "a 8Gi"), newPod("1", "a 8Gi"), newPod("2", "a 8Gi"), newPod("3", "a 7Gi")},
			newPod("u", "app 2Gi"), none, "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"},
		"no preferred node is left":      {[]*v1.Pod{newPod("0", "a 8Gi"), newPod("1", "a 8Gi")}, newPod("u", "app 17Gi"), topology.Result{Preferred: true}, "failed to get the default"},
		"no single node, but a set":      {[]*v1.Pod{newPod("01", "a 9Gi"), newPod("2", "a 8Gi"), newPod("3", "a 8Gi")}, newPod("u", "app 1Gi"), topology.Result{Preferred: true}, "failed to find the default preferred hint"},
		"init containers are reused":     {nil, newPod("u", "init:a 4Gi", "init:b 6Gi", "app 3Gi", "other 5Gi"), none, "a=memory:0@0 app=memory:3Gi@0 b=memory:0@0 other=memory:5Gi@0"},
		"a smaller app leaves the rest":  {nil, newPod("u", "init:a 4Gi", "init:b 3Gi", "app 1Gi"), none, "a=memory:0@0 app=memory:1Gi@0 b=memory:3Gi@0"},
		"sidecars are not reused":        {nil, newPod("u", "init:a 4Gi", "side:s 4Gi", "app 4Gi"), none, "a=memory:0@0 app=memory:4Gi@0 s=memory:4Gi@0"},
		"reuse is within the same nodes": {nil, newPod("u", "init:a 9Gi", "app 4Gi"), none, "a=memory:9Gi@0 and 1 app=memory:4Gi@2"},
	} {
		var g Assignments
		for _, pod := range c.before {
			var nodes topology.Mask
			for _, n := range pod.UID {
				nodes |= topology.MaskOf(int(n - '0'))
			}
			var err error
			if g, err = p.allocate(g, pod, topology.Result{Nodes: nodes}); err != nil {
				t.Fatalf("%s: %v", about, err)
			}
		}
		got, err := p.allocate(g, c.pod, c.hint)
		if text := show(got["u"]); err == nil && text != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %s, %v, want %s", about, text, err, c.want)
		}
		if err == nil && !got.complete(c.pod) {
			t.Errorf("%s: %s is not complete", about, show(got["u"]))
		}
		if again, err2 := p.allocate(got, c.pod, c.hint); err == nil && (err2 != nil || show(again["u"]) != c.want) {
			t.Errorf("%s, again: got %s, %v", about, show(again["u"]), err2)
		}
	}
}

// The hints of allocated memory are its nodes. The hints of a pod cover all its containers together.
func TestStatic_Hints(t *testing.T) {
	p := Static{machine(t, 2)}
	pod := newPod("u", "init:a 7Gi", "app 5Gi 2Mi", "other 4Gi")
	print := func(all []topology.Request) (out string) {
		for _, r := range all {
			out += r.Resource + ":"
			for _, h := range r.Hints {
				out += fmt.Sprintf(" %s %v", h.Nodes, h.Preferred)
			}
			out += "; "
		}
		return out
	}
	if got, want := print(p.Hints(nil, pod, nil)), "hugepages-2Mi: 0 and 1 true; memory: 0 and 1 true; "; got != want {
		t.Errorf("of the pod: got %s, want %s", got, want)
	}
	if got, want := print(p.Hints(nil, pod, &pod.Spec.Containers[1])), "memory: 0 true 1 true 0 and 1 false; "; got != want {
		t.Errorf("of a container: got %s, want %s", got, want)
	}
	g, err := p.Allocate(nil, pod, &pod.Spec.InitContainers[0], topology.Result{Nodes: topology.MaskOf(1)})
	if err != nil {
		t.Fatal(err)
	}
	// 1Gi is free on node 1, and the 7Gi of the init container are reused.
	if got, want := print(p.Hints(g, pod, &pod.Spec.Containers[1])), "memory: 0 true 1 true; "; got != want {
		t.Errorf("with reuse: got %s, want %s", got, want)
	}
	if got, want := print(p.Hints(g, pod, &pod.Spec.InitContainers[0])), "memory: 1 true; "; got != want {
		t.Errorf("of allocated memory: got %s, want %s", got, want)
	}
}

// At any time the blocks fit into the memory of their nodes, a node is in one set only, and the checkpoint is accepted. After
// the end of all pods everything is free.
func TestStatic_RandomDays(t *testing.T) {
	p := Static{machine(t, 4)}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var g Assignments
		for range 40 {
			uid := fmt.Sprint(r.IntN(8))
			if g[uid] != nil {
				g = g.without(uid)
				continue
			}
			var containers []string
			for i := range 1 + r.IntN(3) {
				containers = append(containers, fmt.Sprintf("%sc%d %dGi", []string{"", "", "init:", "side:"}[r.IntN(4)], i, 1+r.IntN(12)))
			}
			pod := newPod(uid, containers...)
			next, err := p.allocate(g, pod, topology.Result{Nodes: topology.Mask(r.IntN(16))})
			if err == nil {
				g = next
			}
			sums, group := map[topology.Mask]uint64{}, map[int]topology.Mask{}
			for _, pod := range g {
				for _, blocks := range pod {
					for _, b := range blocks {
						sums[b.Nodes] += b.Size
						for n := range b.Nodes.Nodes() {
							if has := group[n]; has != 0 && has != b.Nodes {
								t.Fatalf("seed %d: node %d serves %s and %s", seed, n, has, b.Nodes)
							}
							group[n] = b.Nodes
						}
					}
				}
			}
			for nodes, sum := range sums {
				if sum > p.allocatable(nodes, "memory") {
					t.Fatalf("seed %d: nodes %s give %s", seed, nodes, bytes(sum))
				}
			}
			if err := p.Restore(p.data(g)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
