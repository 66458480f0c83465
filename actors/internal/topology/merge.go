package topology

import (
	"cmp"
)

// Hint is a set of NUMA nodes that can satisfy a request. A preferred one uses as few nodes as the machine ever needs for it.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// Request is a resource with the hints for it. A request without hints can be satisfied from no set of nodes. A resource without
// a preference has no Request.
type Request struct {
	Resource string
	Hints    []Hint
}

// Result is the merged hint. Without Nodes there is no restriction.
type Result struct {
	Nodes     Mask
	Preferred bool
}

// combination is a combination of one hint for each of the first requests.
type combination struct {
	nodes     Mask // the intersection of the hints
	first     Mask // the first hint; empty: none had nodes
	preferred bool // all are preferred, and equal
}

// merge returns the best combination of one hint for each request. The kubelet compares all combinations one by one; here equal
// intermediate results are joined, so that the cost does not grow with the power of the number of requests. The result is the
// same, because the order of two results does not depend on the combination that they stem from.
func (m Machine) merge(requests []Request, closest bool) Result {
	reached := map[combination]bool{{nodes: m.Nodes, preferred: true}: true}
	for _, r := range requests {
		next := map[combination]bool{}
		for p := range reached {
			for _, h := range r.Hints {
				next[p.with(h)] = true
			}
		}
		reached = next
	}
	target := target(requests)
	best := Result{Nodes: m.Nodes}
	found := false
	for p := range reached {
		if c := (Result{p.nodes, p.preferred}); c.Nodes != 0 && (!found || m.compare(c, best, target, closest) < 0) {
			best, found = c, true
		}
	}
	return best
}

func (p combination) with(h Hint) combination {
	p.preferred = p.preferred && h.Preferred
	if h.Nodes == 0 { // no set of nodes is better than another
		return p
	}
	if p.first == 0 {
		p.first = h.Nodes
	}
	p.preferred = p.preferred && h.Nodes == p.first
	p.nodes &= h.Nodes
	return p
}

// target is the number of nodes that a result without preference should have: as many as the most demanding request needs.
func target(requests []Request) (out int) {
	for _, r := range requests {
		least := 0
		for _, h := range r.Hints {
			if n := h.Nodes.Len(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		out = max(out, least)
	}
	return out
}

// compare orders results, the best first: preferred ones with few nodes; then others by their distance to the target, first
// those with the target's number of nodes, then smaller ones, then larger ones. Among equal numbers the closest nodes come
// first, if that is an option, then the lowest.
func (m Machine) compare(a, b Result, target int, closest bool) int {
	if a.Preferred != b.Preferred {
		if a.Preferred {
			return -1
		}
		return 1
	}
	rank := func(r Result) (class, order int) {
		n := r.Nodes.Len()
		switch {
		case r.Preferred || n == target:
			return 0, n
		case n < target:
			return 1, -n
		}
		return 2, n
	}
	classA, orderA := rank(a)
	classB, orderB := rank(b)
	if c := cmp.Or(cmp.Compare(classA, classB), cmp.Compare(orderA, orderB)); c != 0 {
		return c
	}
	if closest {
		if c := cmp.Compare(m.distance(a.Nodes), m.distance(b.Nodes)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.Nodes, b.Nodes)
}

// distance is the sum of the distances between the nodes, which orders sets of equal size like their average.
func (m Machine) distance(nodes Mask) (sum uint64) {
	for from := range nodes.Nodes() {
		for to := range nodes.Nodes() {
			if all := m.Distances[from]; to < len(all) {
				sum += all[to]
			}
		}
	}
	return sum
}
