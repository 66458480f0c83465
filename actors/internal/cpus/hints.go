package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Hints returns the hints for a container, or for the whole pod if it is nil. Without exclusive CPUs there is no request. CPUs
// that are assigned already have hints with their nodes; the hints of a pod include the CPUs of its containers.
func (p Static) Hints(g Assignments, pod *v1.Pod, c *v1.Container) []topology.Request {
	var n int
	var has, reuse cpuset.CPUSet
	if c != nil {
		n, has, reuse = Exclusive(pod, c), g[string(pod.UID)][c.Name], g.reusable(pod, c)
	} else {
		n, has = ofPod(pod), Assignments{"": g[string(pod.UID)]}.All()
		reuse = has
	}
	if n == 0 {
		return nil
	}
	free := p.Shared(g).Difference(p.reserved)
	if p.options.FullCores { // siblings of reserved CPUs can never be part of a free core
		siblings := p.topology.Siblings(p.reserved)
		free, reuse = free.Difference(siblings), reuse.Difference(siblings)
	}
	if has.Size() == n {
		free, reuse = has, cpuset.CPUSet{}
	}
	return []topology.Request{{Resource: string(v1.ResourceCPU), Hints: p.hints(free, reuse, n)}}
}

// hints returns the sets of NUMA nodes with at least n free CPUs. reuse are the free CPUs of the pod's init containers: a set
// must have the nodes of all of them. The preferred sets have as few nodes as the machine has for n CPUs, whether they are free
// or not; with align-by-socket also all those that span as few sockets as that number of nodes.
func (p Static) hints(free, reuse cpuset.CPUSet, n int) (out []topology.Hint) {
	t := p.topology
	var must topology.Mask
	for _, id := range reuse.UnsortedList() {
		must |= topology.MaskOf(t[id].Node)
	}
	all := t.nodes(t.All())
	usable := free.Union(reuse)
	least := all.Len()
	for mask := range all.Subsets() {
		if t.within(mask, t.All()).Size() >= n {
			least = min(least, mask.Len())
		}
		if must&^mask == 0 && t.within(mask, usable).Size() >= n {
			out = append(out, topology.Hint{Nodes: mask})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least || p.options.BySocket && p.alignedBySocket(out[i].Nodes, least)
	}
	return out
}

// alignedBySocket reports whether the nodes are on as few sockets as the least number of nodes needs.
func (p Static) alignedBySocket(nodes topology.Mask, least int) bool {
	per := p.topology.count(node) / p.topology.count(socket)
	if per == 0 {
		return false
	}
	sockets := p.topology.sizes(p.topology.within(nodes, p.topology.All()).UnsortedList(), socket)
	return len(sockets) == ceil(least, per)
}

// takeFrom is Take that prefers the CPUs of the nodes of a hint, and completes them with others. A hint without nodes is no
// restriction.
func (p Static) takeFrom(nodes topology.Mask, free cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	if nodes == 0 {
		return Take(p.topology, free, n, p.options)
	}
	aligned := p.topology.within(p.alignment(nodes), free)
	first, err := Take(p.topology, aligned, min(n, aligned.Size()), p.options)
	if err != nil {
		return first, err
	}
	rest, err := Take(p.topology, free.Difference(first), n-first.Size(), p.options)
	return first.Union(rest), err
}

// alignment returns the nodes that count as aligned with a hint: with align-by-socket all nodes of its sockets.
func (p Static) alignment(nodes topology.Mask) topology.Mask {
	if !p.options.BySocket {
		return nodes
	}
	sockets := p.topology.sizes(p.topology.within(nodes, p.topology.All()).UnsortedList(), socket)
	for _, c := range p.topology {
		if _, has := sockets[c.Socket]; has {
			nodes |= topology.MaskOf(c.Node)
		}
	}
	return nodes
}

// nodes returns the NUMA nodes of the CPUs.
func (t Topology) nodes(set cpuset.CPUSet) (out topology.Mask) {
	for _, id := range set.UnsortedList() {
		out |= topology.MaskOf(t[id].Node)
	}
	return out
}

// within returns the CPUs of set that are on these NUMA nodes.
func (t Topology) within(nodes topology.Mask, set cpuset.CPUSet) cpuset.CPUSet {
	var out []int
	for _, id := range set.UnsortedList() {
		if nodes.Has(t[id].Node) {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}
