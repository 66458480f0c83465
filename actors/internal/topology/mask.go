package topology

import (
	"fmt"
	"iter"
	"math/bits"
	"strings"
)

// Mask is a set of NUMA nodes: bit n stands for node n, up to 63. The empty set is no restriction in a Result.
type Mask uint64

// MaskOf returns the set of these nodes. Numbers outside 0 to 63 are ignored.
func MaskOf(nodes ...int) (m Mask) {
	for _, n := range nodes {
		if n >= 0 && n < 64 {
			m |= 1 << n
		}
	}
	return m
}

// Len returns the number of nodes.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Nodes yields the nodes, the lowest first.
func (m Mask) Nodes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := uint64(m); rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(rest)) {
				return
			}
		}
	}
}

// Has reports whether the node is in the set.
func (m Mask) Has(node int) bool { return m&MaskOf(node) != 0 }

// Subsets yields the non-empty subsets of m. It is meant for the few nodes that max-allowable-numa-nodes permits.
func (m Mask) Subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for sub := m & -m; sub != 0; sub = (sub - m) & m {
			if !yield(sub) {
				return
			}
		}
	}
}

// String returns the nodes as "0 and 2", or "none".
func (m Mask) String() string {
	var all []string
	for n := range m.Nodes() {
		all = append(all, fmt.Sprint(n))
	}
	if len(all) == 0 {
		return "none"
	}
	if last := len(all) - 1; last > 0 {
		return strings.Join(all[:last], ", ") + " and " + all[last]
	}
	return all[0]
}
