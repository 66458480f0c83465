package numamemory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/cri/translate"
)

// Static is the static policy on a machine. It is immutable.
type Static struct{ machine Machine }

// refusal returns the kubelet's error of a container that cannot have its memory; Kubernetes' tests match the prefix.
func refusal(text string) error { return errors.New("[memorymanager] " + text) }

// Asks reports whether the pod has memory from chosen nodes under the static policy.
func Asks(pod *v1.Pod) bool {
	r := pod.Spec.Resources
	return (r == nil || len(r.Requests)+len(r.Limits) == 0) && translate.QOSClass(pod) == v1.PodQOSGuaranteed
}

// memoryOf returns the part of a list that is allocated here.
func memoryOf(list v1.ResourceList) request {
	out := request{}
	for name, q := range list {
		if isMemory(name) && q.Sign() > 0 {
			out[name] = uint64(q.Value()) //nolint:gosec // not negative
		}
	}
	return out
}

// ofPod returns the request of the pod as a whole, without its overhead.
func ofPod(pod *v1.Pod) request {
	return memoryOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}))
}

// Allocate adds the memory of a container, from the nodes of the merged hint if possible. One that has its memory keeps it. The
// memory that is reused is subtracted from the blocks of the init containers, so that the sum of all blocks is the allocated
// memory.
func (p Static) Allocate(g Assignments, pod *v1.Pod, c *v1.Container, hint topology.Result) (Assignments, error) {
	uid, r := string(pod.UID), memoryOf(c.Resources.Requests)
	if len(r) == 0 || g[uid][c.Name] != nil {
		return g, nil
	}
	nodes, err := p.choose(p.machine.usage(g), g.reusable(pod, c), r, hint)
	if err != nil {
		return g, err
	}
	has := maps.Clone(g[uid])
	if has == nil {
		has = map[string][]Block{}
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		has[c.Name] = append(has[c.Name], Block{nodes, name, r[name]})
		reuse(has, pod, c, Block{nodes, name, r[name]})
	}
	out := maps.Clone(g)
	if out == nil {
		out = Assignments{}
	}
	out[uid] = has
	return out, nil
}

// before returns the init containers that end before a container starts.
func before(pod *v1.Pod, c *v1.Container) (names []string) {
	for i := range pod.Spec.InitContainers {
		one := &pod.Spec.InitContainers[i]
		if one.Name == c.Name {
			break
		}
		if !translate.RestartsAlways(one) {
			names = append(names, one.Name)
		}
	}
	return names
}

// reusable returns the memory that a container may reuse.
func (g Assignments) reusable(pod *v1.Pod, c *v1.Container) reusableMemory {
	out := reusableMemory{}
	for _, name := range before(pod, c) {
		for _, b := range g[string(pod.UID)][name] {
			if out[b.Nodes] == nil {
				out[b.Nodes] = request{}
			}
			out[b.Nodes][b.Type] += b.Size
		}
	}
	return out
}

// reuse subtracts a container's block from the blocks of earlier init containers.
func reuse(has map[string][]Block, pod *v1.Pod, c *v1.Container, block Block) {
	for _, name := range before(pod, c) {
		blocks := slices.Clone(has[name])
		for i, b := range blocks {
			if b.Nodes == block.Nodes && b.Type == block.Type {
				taken := min(b.Size, block.Size)
				blocks[i].Size -= taken
				block.Size -= taken
			}
		}
		if blocks != nil {
			has[name] = blocks
		}
	}
}

// complete reports whether each container of a pod has the memory of its request. Blocks of init containers may be smaller.
func (g Assignments) complete(pod *v1.Pod) bool {
	has := g[string(pod.UID)]
	for i, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for j := range list {
			c, sizes := &list[j], request{}
			for _, b := range has[list[j].Name] {
				sizes[b.Type] = b.Size
			}
			r := memoryOf(c.Resources.Requests)
			if ends := i == 0 && !translate.RestartsAlways(c); len(sizes) != len(r) || !ends && !maps.Equal(sizes, r) {
				return false
			}
		}
	}
	return true
}

// Hints returns the hints for a container, or for the whole pod if it is nil. Memory that is allocated already has one hint.
func (p Static) Hints(g Assignments, pod *v1.Pod, c *v1.Container) (out []topology.Request) {
	uid, r := string(pod.UID), ofPod(pod)
	var has []Block
	if c != nil {
		r, has = memoryOf(c.Resources.Requests), g[uid][c.Name]
	} else {
		for _, blocks := range g[uid] {
			has = append(has, blocks...)
		}
	}
	var hints []topology.Hint
	if len(has) > 0 {
		var nodes topology.Mask
		for _, b := range has {
			nodes |= b.Nodes
		}
		hints = []topology.Hint{{Nodes: nodes, Preferred: true}}
	} else {
		var reuse reusableMemory
		if c != nil {
			reuse = g.reusable(pod, c)
		}
		hints = p.hints(p.machine.usage(g), reuse, r)
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		out = append(out, topology.Request{Resource: string(name), Hints: hints})
	}
	return out
}

// explain returns the requested memory of a container, and the free memory of each node.
func (p Static) explain(g Assignments, c *v1.Container) string {
	u, r := p.machine.usage(g), memoryOf(c.Resources.Requests)
	text := fmt.Sprintf("container %s", c.Name)
	for i, name := range slices.Sorted(maps.Keys(r)) {
		text += fmt.Sprintf("%s requests %s of %s", []string{"", ","}[min(i, 1)], bytes(r[name]), name)
		for n := range p.machine.nodes().Nodes() {
			text += fmt.Sprintf("; NUMA node %d has %s of %s free", n, bytes(u.free[n][name]),
				bytes(p.machine[n][name].Allocatable))
			if group := u.group[n]; group.Len() > 1 {
				text += fmt.Sprintf(", together with the nodes %s", group)
			}
		}
	}
	return text
}
