package topology

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// hint returns a hint for these nodes.
func hint(preferred bool, nodes ...int) Hint { return Hint{MaskOf(nodes...), preferred} }

// bruteForce is the kubelet's rule word by word: every combination of one hint for each request, compared one after another.
func bruteForce(m Machine, requests []Request, closest bool) Result {
	least := 0
	for _, r := range requests {
		n := 0
		for _, h := range r.Hints {
			if h.Nodes != 0 && (n == 0 || h.Nodes.Len() < n) {
				n = h.Nodes.Len()
			}
		}
		least = max(least, n)
	}
	narrower := func(a, b Result) bool { // a is better than b, of the same class
		switch la, lb := a.Nodes.Len(), b.Nodes.Len(); {
		case la != lb:
			return la < lb
		case closest && m.distance(a.Nodes) != m.distance(b.Nodes):
			return m.distance(a.Nodes) < m.distance(b.Nodes)
		}
		return a.Nodes < b.Nodes
	}
	var best *Result
	consider := func(c Result) {
		switch {
		case c.Nodes == 0:
			return
		case best == nil, c.Preferred && !best.Preferred:
			best = &c
			return
		case best.Preferred && !c.Preferred:
			return
		case best.Preferred && c.Preferred:
			if narrower(c, *best) {
				best = &c
			}
			return
		}
		cn, bn := c.Nodes.Len(), best.Nodes.Len()
		var better bool
		switch {
		case bn > least, bn == least && cn == least, cn == bn:
			better = narrower(c, *best)
		case bn == least, cn > least:
		default: // both are below, or the candidate is exact
			better = cn > bn
		}
		if better {
			best = &c
		}
	}
	var choose func(i int, chosen []Hint)
	choose = func(i int, chosen []Hint) {
		if i < len(requests) {
			for _, h := range requests[i].Hints {
				choose(i+1, append(slices.Clone(chosen), h))
			}
			return
		}
		out := Result{m.Nodes, true}
		var first Mask
		for _, h := range chosen {
			if out.Preferred = out.Preferred && h.Preferred; h.Nodes == 0 {
				continue
			}
			if first == 0 {
				first = h.Nodes
			}
			if h.Nodes != first {
				out.Preferred = false
			}
			out.Nodes &= h.Nodes
		}
		consider(out)
	}
	choose(0, nil)
	if best == nil {
		return Result{Nodes: m.Nodes}
	}
	return *best
}

// The merge equals the comparison of all combinations, in any order of requests, on machines of one to four nodes.
func TestMerge_EqualsBruteForce(t *testing.T) {
	preferred := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + r.IntN(4)
		m := Machine{Nodes: Mask(1)<<n - 1, Distances: map[int][]uint64{}}
		for i := range n {
			for range n {
				m.Distances[i] = append(m.Distances[i], 10+r.Uint64N(3))
			}
		}
		var requests []Request
		for range r.IntN(4) {
			var hints []Hint
			for range r.IntN(6) {
				hints = append(hints, Hint{Mask(r.Uint64N(1 << n)), r.IntN(3) > 0})
			}
			requests = append(requests, Request{Hints: hints})
		}
		closest := r.IntN(2) == 0
		got, want := m.merge(requests, closest), bruteForce(m, requests, closest)
		if got != want {
			t.Fatalf("seed %d: got %+v, want %+v for %+v on %d nodes, closest %v", seed, got, want, requests, n, closest)
		}
		r.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		if again := m.merge(requests, closest); again != got {
			t.Fatalf("seed %d: got %+v in another order, want %+v", seed, again, got)
		}
		if got.Preferred {
			preferred++
		}
	}
	if preferred < 2_000 || preferred > 18_000 {
		t.Errorf("%d of 20000 cases have a preferred result: the cases are one-sided", preferred)
	}
}

// The policies on two nodes.
func TestPolicy_Admit(t *testing.T) {
	one, two, both := hint(true, 0), hint(true, 1), hint(false, 0, 1)
	cpu := func(all ...Hint) Request { return Request{"cpu", all} }
	gpu := func(all ...Hint) Request { return Request{"example.com/gpu", all} }
	for name, c := range map[string]struct {
		requests []Request
		nodes    [3]Mask // best-effort, restricted, single-numa-node
		admitted [3]bool
		detail   string // of single-numa-node
	}{
		"no request": {nil, [3]Mask{3, 3, 0}, [3]bool{true, true, true}, ""},
		"one node has both": {[]Request{cpu(one, two, both), gpu(two, both)}, [3]Mask{2, 2, 2},
			[3]bool{true, true, true}, ""},
		"different nodes": {[]Request{cpu(one, both), gpu(two, both)}, [3]Mask{1, 1, 0}, [3]bool{true, false, false},
			"policy single-numa-node: no NUMA nodes suit all resources: cpu fits on 0; example.com/gpu fits on 1"},
		"as many as a node has not": {[]Request{cpu(hint(true, 0, 1))}, [3]Mask{3, 3, 0}, [3]bool{true, true, false},
			"policy single-numa-node: cpu fits on no preferred set of the NUMA nodes 0 and 1"},
		"both nodes, although one would do": {[]Request{cpu(both)}, [3]Mask{3, 3, 0}, [3]bool{true, false, false},
			"policy single-numa-node: cpu fits on no preferred set of the NUMA nodes 0 and 1"},
		"a device of no node of the machine": {[]Request{cpu(one, two, both), gpu()}, [3]Mask{1, 1, 0},
			[3]bool{true, false, false},
			"policy single-numa-node: example.com/gpu fits on no preferred set of the NUMA nodes 0 and 1"},
		"an impossible request, and one that prefers both nodes": {[]Request{cpu(hint(false, 0), hint(true, 0, 1)), gpu()},
			[3]Mask{1, 1, 0}, [3]bool{true, false, false},
			"policy single-numa-node: cpu fits on no preferred set of the NUMA nodes 0 and 1"},
	} {
		for i, policy := range []string{PolicyBestEffort, PolicyRestricted, PolicySingleNode} {
			p, err := NewPolicy(policy, Machine{Nodes: MaskOf(0, 1)}, Options{MaxNodes: 8})
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Admit(c.requests)
			if got.Nodes != c.nodes[i] || (err == nil) != c.admitted[i] {
				t.Errorf("%s, %s: got %+v, %v; want nodes %v, admitted %v", name, policy, got, err, c.nodes[i], c.admitted[i])
			}
			if refusal, refused := errors.AsType[Refusal](err); refused && (err.Error() != MessageAffinity ||
				p.Aligns() && refusal.Detail != c.detail) {
				t.Errorf("%s, %s: refused as %q: %q", name, policy, err, refusal.Detail)
			}
		}
	}
	none, err := NewPolicy(PolicyNone, Machine{}, Options{})
	if got, refused := none.Admit([]Request{gpu()}); err != nil || refused != nil || got.Nodes != 0 {
		t.Errorf("policy none: got %+v, %v, %v", got, refused, err)
	}
}

// With prefer-closest-numa-nodes the nearest pair is chosen, otherwise the lowest.
func TestPolicy_Closest(t *testing.T) {
	far := map[int][]uint64{0: {10, 30, 11}, 1: {30, 10, 30}, 2: {11, 30, 10}}
	for closest, want := range map[bool]Mask{false: MaskOf(0, 1), true: MaskOf(0, 2)} {
		p, err := NewPolicy(PolicyRestricted, Machine{MaskOf(0, 1, 2), far}, Options{Closest: closest, MaxNodes: 8})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Admit([]Request{{"cpu", []Hint{hint(true, 0, 1), hint(true, 0, 2), hint(true, 1, 2)}}})
		if err != nil || got.Nodes != want {
			t.Errorf("closest %v: got %v, %v, want %v", closest, got.Nodes, err, want)
		}
	}
}

// Options and machines that a kubelet refuses.
func TestPolicy_Refused(t *testing.T) {
	for want, values := range map[string]map[string]string{
		"":                   {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "9"},
		"unknown Topology":   {"nearest": "true"},
		"bad value":          {"prefer-closest-numa-nodes": "perhaps"},
		"to integer":         {"max-allowable-numa-nodes": "many"},
		"should not be less": {"max-allowable-numa-nodes": "7"},
	} {
		if _, err := ParseOptions(values); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("options %v: got %v, want %q", values, err, want)
		}
	}
	for want, make := range map[string]func() (Policy, error){
		"unknown policy": func() (Policy, error) { return NewPolicy("any", Machine{}, Options{}) },
		"more than 8": func() (Policy, error) {
			return NewPolicy(PolicyBestEffort, Machine{Nodes: 1<<9 - 1}, Options{MaxNodes: 8})
		},
		"distances": func() (Policy, error) {
			return NewPolicy(PolicyBestEffort, Machine{Nodes: 1}, Options{Closest: true, MaxNodes: 8})
		},
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestMask_Subsets(t *testing.T) {
	var all []Mask
	for m := range MaskOf(0, 2).Subsets() {
		all = append(all, m)
	}
	if !slices.Equal(all, []Mask{1, 4, 5}) || MaskOf(0, 2, 3).String() != "0, 2 and 3" || Mask(0).String() != "none" {
		t.Errorf("got subsets %v", all)
	}
}
