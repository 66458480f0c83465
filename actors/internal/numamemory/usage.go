package numamemory

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Block is memory of one type from a set of NUMA nodes, in bytes.
type Block struct {
	Nodes topology.Mask
	Type  v1.ResourceName
	Size  uint64
}

// Assignments is the memory of containers, by UID and name. It is immutable: changes return a new value.
type Assignments map[string]map[string][]Block

// Keep returns the allocations of the pods that still hold their memory.
func (g Assignments) Keep(holds func(uid string) bool) Assignments {
	out := maps.Clone(g)
	maps.DeleteFunc(out, func(uid string, _ map[string][]Block) bool { return !holds(uid) })
	return out
}

// without returns the allocations without one pod's.
func (g Assignments) without(uid string) Assignments {
	return g.Keep(func(other string) bool { return other != uid })
}

// usage is the state of the machine with its allocations.
type usage struct {
	free   map[int]map[v1.ResourceName]uint64
	blocks map[int]int           // of all types
	group  map[int]topology.Mask // the nodes that serve containers together with a node; absent: no container has memory of it
}

// usage derives the state. A block of several nodes fills the lowest nodes first. As these nodes serve no other set, its exact
// distribution does not matter to any decision.
func (m Machine) usage(g Assignments) usage {
	u := usage{map[int]map[v1.ResourceName]uint64{}, map[int]int{}, map[int]topology.Mask{}}
	for n, types := range m {
		u.free[n] = map[v1.ResourceName]uint64{}
		for name, t := range types {
			u.free[n][name] = t.Allocatable
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(g)) {
		for _, name := range slices.Sorted(maps.Keys(g[uid])) {
			for _, b := range g[uid][name] {
				rest := b.Size
				for n := range b.Nodes.Nodes() {
					taken := min(rest, u.free[n][b.Type])
					if taken > 0 {
						u.free[n][b.Type] -= taken
						rest -= taken
					}
					u.blocks[n]++
					u.group[n] = b.Nodes
				}
			}
		}
	}
	return u
}

// freeOn returns the free memory of a set of nodes.
func (u usage) freeOn(nodes topology.Mask, name v1.ResourceName) (sum uint64) {
	for n := range nodes.Nodes() {
		sum += u.free[n][name]
	}
	return sum
}

// conflicts reports whether one of the nodes serves containers in another set.
func (u usage) conflicts(nodes topology.Mask) bool {
	for n := range nodes.Nodes() {
		if group, used := u.group[n]; used && group != nodes {
			return true
		}
	}
	return false
}
