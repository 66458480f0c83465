package numamemory

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// request is the memory that a container or a pod asks for, in bytes by type.
type request map[v1.ResourceName]uint64

// reusableMemory is the memory of a pod's init containers, by nodes and type.
type reusableMemory map[topology.Mask]request

// hints returns the sets of nodes with enough free memory of all types. The preferred ones have as few nodes as the machine has
// for the request, whether its memory is free or not.
func (p Static) hints(u usage, reuse reusableMemory, r request) (out []topology.Hint) {
	all := p.machine.nodes()
	least := all.Len()
	for nodes := range all.Subsets() {
		if !r.within(func(name v1.ResourceName) uint64 { return p.allocatable(nodes, name) }) {
			continue
		}
		least = min(least, nodes.Len())
		free := func(name v1.ResourceName) uint64 { return u.freeOn(nodes, name) + reuse[nodes][name] }
		if !u.conflicts(nodes) && r.within(free) {
			out = append(out, topology.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out
}

// within reports whether there is enough of each type.
func (r request) within(has func(v1.ResourceName) uint64) bool {
	for name, size := range r {
		if has(name) < size {
			return false
		}
	}
	return true
}

func (p Static) allocatable(nodes topology.Mask, name v1.ResourceName) (sum uint64) {
	for n := range nodes.Nodes() {
		sum += p.machine[n][name].Allocatable
	}
	return sum
}

// best returns the preferred hint with the fewest and lowest nodes among those that include the given nodes.
func best(hints []topology.Hint, include topology.Mask) (out topology.Hint, found bool) {
	hints = slices.DeleteFunc(slices.Clone(hints), func(h topology.Hint) bool { return include&^h.Nodes != 0 })
	if len(hints) == 0 {
		return out, false
	}
	return slices.MinFunc(hints, func(a, b topology.Hint) int {
		if a.Preferred != b.Preferred {
			if a.Preferred {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Nodes.Len(), b.Nodes.Len()), cmp.Compare(a.Nodes, b.Nodes))
	}), true
}

// choose returns the nodes of a request: the merged hint if it suits, else the best ones that include them.
func (p Static) choose(u usage, reuse reusableMemory, r request, hint topology.Result) (topology.Mask, error) {
	hints := p.hints(u, reuse, r)
	if hint.Nodes != 0 && slices.ContainsFunc(hints, func(h topology.Hint) bool { return h.Nodes == hint.Nodes }) {
		return hint.Nodes, nil
	}
	chosen, found := best(hints, hint.Nodes)
	switch {
	case hint.Nodes == 0 && !found:
		return 0, refusal("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	case hint.Nodes == 0 && hint.Preferred && !chosen.Preferred:
		return 0, refusal("failed to find the default preferred hint")
	case hint.Nodes == 0:
	case hint.Preferred:
		// The hint was possible when it was given.
		return 0, topology.ChangedError{Err: refusal("failed to find the extended preferred hint")}
	case !found && r.within(func(name v1.ResourceName) uint64 { return u.freeOn(hint.Nodes, name) }):
		return 0, refusal("preferred hint violates NUMA node allocation")
	case !found:
		return 0, refusal("failed to find NUMA nodes to extend the current topology hint")
	}
	return chosen.Nodes, nil
}
