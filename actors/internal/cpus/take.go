package cpus

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// Take returns n of the free CPUs, as near to each other as the options permit: from one NUMA node if one has enough, else from
// one socket. It prefers the places with the fewest free CPUs, so that whole ones stay free for others.
func Take(t Topology, free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, error) {
	if n > free.Size() {
		return cpuset.CPUSet{}, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d",
			n, free.Size())
	}
	a := taker{topology: t, free: free.List(), need: n}
	group := 1
	if o.FullCores {
		group = t.PerCore()
	}
	if !o.AcrossNodes || n%group != 0 || !a.spreadOverNodes(group) {
		a.pack(o)
	}
	return cpuset.New(a.taken...), nil
}

// taker collects CPUs.
type taker struct {
	topology    Topology
	free, taken []int
	need        int
}

// path returns the kinds of groups down to one, the largest first. A socket has several NUMA nodes, or the other way round.
func (a *taker) path(last level) []level {
	all := []level{socket, node}
	if a.topology.count(socket) >= a.topology.count(node) {
		all = []level{node, socket}
	}
	if last == core {
		return append(all, core)
	}
	if last == cache {
		return append(all[:slices.Index(all, node)+1:2], cache)
	}
	return all[:slices.Index(all, last)+1]
}

// pack takes the remaining CPUs from as few groups as possible.
func (a *taker) pack(o Options) {
	places := a.path(core)[:2]
	large, small := places[0], places[1]
	if o.AlignCaches {
		a.fill(a.one(cache), o)
	}
	a.fill(a.one(small), o)
	if enough := a.one(large); enough != nil {
		a.free = enough
	}
	a.whole(places[:1])
	a.whole(places)
	var chosen []int
	for plan := *a; plan.need > 0; {
		group := plan.one(small)
		if group == nil {
			if enough := plan.one(large); enough != nil {
				plan.free = enough
			}
			group = slices.MaxFunc(plan.groups(places), func(x, y []int) int { return cmp.Compare(len(x), len(y)) })
		}
		chosen = append(chosen, group...)
		plan.take(group)
	}
	a.fill(chosen, o)
}

// one returns the free CPUs of the group of a kind that has the needed CPUs and the fewest others, or nil. It prefers groups with
// enough whole cores.
func (a *taker) one(kind level) (best []int) {
	if a.need == 0 {
		return nil
	}
	for _, group := range a.groups(a.path(kind)) {
		in := taker{topology: a.topology, free: group, need: a.need}
		in.whole(in.path(core))
		switch {
		case len(group) < a.need:
		case in.need < a.topology.PerCore():
			return group
		case best == nil:
			best = group
		}
	}
	return best
}

// fill takes CPUs of one group: whole caches if they are to be aligned, whole cores, then single CPUs.
func (a *taker) fill(group []int, o Options) {
	in := taker{topology: a.topology, free: group, need: min(a.need, len(group))}
	if o.AcrossCores {
		in.take(in.alternate())
	}
	if o.AlignCaches {
		in.whole(in.path(cache))
		if rest := in.one(cache); rest != nil {
			in.free = rest
		}
	}
	in.whole(in.path(core))
	for _, rest := range in.groups(in.path(core)) {
		in.take(rest)
	}
	a.take(in.taken)
}

// alternate returns the free CPUs in an order that takes one of each core before the second of any.
func (a *taker) alternate() []int {
	order, seen := map[int]int{}, map[int]int{}
	for _, id := range slices.Sorted(slices.Values(a.free)) {
		c := a.topology[id].Core
		order[id] = seen[c]
		seen[c]++
	}
	return slices.SortedFunc(slices.Values(a.free), func(x, y int) int {
		return cmp.Or(cmp.Compare(order[x], order[y]), cmp.Compare(x, y))
	})
}

// whole takes groups of the last kind of path that are free as a whole and not larger than the need.
func (a *taker) whole(path []level) {
	last := path[len(path)-1]
	total := map[int]int{}
	for _, c := range a.topology {
		total[last.of(c)]++
	}
	for _, group := range a.groups(path) {
		if len(group) <= a.need && len(group) == total[last.of(a.topology[group[0]])] {
			a.take(group)
		}
	}
}

// groups returns the free CPUs by their group of the last level of path. At each level, groups with the fewest free CPUs come
// first, and the lowest number among equals.
func (a *taker) groups(path []level) (out [][]int) {
	sizes := make([]map[int]int, len(path))
	for i, l := range path {
		sizes[i] = a.topology.sizes(a.free, l)
	}
	free := slices.Clone(a.free)
	slices.SortFunc(free, func(x, y int) int {
		for i, l := range path {
			gx, gy := l.of(a.topology[x]), l.of(a.topology[y])
			if c := cmp.Or(cmp.Compare(sizes[i][gx], sizes[i][gy]), cmp.Compare(gx, gy)); c != 0 {
				return c
			}
		}
		return cmp.Compare(x, y)
	})
	last := path[len(path)-1]
	for i, id := range free {
		if i == 0 || last.of(a.topology[id]) != last.of(a.topology[free[i-1]]) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], id)
	}
	return out
}

// take takes CPUs in their order until none is needed.
func (a *taker) take(ids []int) {
	ids = ids[:min(len(ids), a.need)]
	a.taken = append(a.taken, ids...)
	a.need -= len(ids)
	a.free = slices.DeleteFunc(slices.Clone(a.free), func(id int) bool { return slices.Contains(ids, id) })
}

// spreadOverNodes takes the CPUs in groups of equal size from as few NUMA nodes as can give equal shares (KEP-2902). Between sets
// of nodes, it prefers the one that leaves the nodes most evenly loaded. It takes nothing and returns false if there is none.
func (a *taker) spreadOverNodes(group int) bool {
	if a.need == 0 {
		return true
	}
	var nodes []int
	for _, g := range a.groups(a.path(node)) {
		nodes = append(nodes, a.topology[g[0]].Node)
	}
	free := a.topology.sizes(a.free, node)
	groups := ceil(a.need, group)
	fewest := ceil(groups, ceil(ceil(len(a.topology), group), a.topology.count(node)))
	for k := fewest; k <= min(groups, len(nodes)); k++ {
		var best map[int]int
		imbalance := 0
		for some := range combinations(nodes, k) {
			shares, sum := share(free, some, a.need, group)
			if shares != nil && (best == nil || sum < imbalance) {
				best, imbalance = shares, sum
			}
		}
		if best == nil {
			continue
		}
		for _, n := range nodes {
			in := taker{topology: a.topology, need: best[n]}
			for _, id := range a.free {
				if a.topology[id].Node == n {
					in.free = append(in.free, id)
				}
			}
			in.pack(Options{})
			a.take(in.taken)
		}
		return true
	}
	return false
}

// share distributes need CPUs over the given nodes: the same number of groups from each, the remainder from the nodes that leave
// the node's free CPUs most even. It returns nil if they have too few. The imbalance is the sum of the squares of the CPUs that
// stay free on each node, which orders like their standard deviation, because their sum is fixed.
func share(free map[int]int, nodes []int, need, group int) (shares map[int]int, imbalance int) {
	even := need / len(nodes) / group * group
	base, capable := map[int]int{}, []int(nil)
	for _, n := range nodes {
		if free[n] < even {
			return nil, 0
		}
		base[n] = even
		if free[n]-even >= group {
			capable = append(capable, n)
		}
	}
	rest := need - even*len(nodes)
	if rest == 0 {
		return base, squares(free, base)
	}
	for k := len(capable); k > 0; k-- {
		for some := range combinations(capable, k) {
			if s := hand(free, base, some, rest, group); s != nil {
				if sum := squares(free, s); shares == nil || sum < imbalance {
					shares, imbalance = s, sum
				}
			}
		}
	}
	return shares, imbalance
}

// hand adds rest CPUs to the shares, one group from each of some nodes in turn. It returns nil if they have too few.
func hand(free, base map[int]int, some []int, rest, group int) map[int]int {
	out := map[int]int{}
	for n, has := range base {
		out[n] = has
	}
	for progress := true; rest > 0 && progress; {
		progress = false
		for _, n := range some {
			if rest > 0 && free[n]-out[n] >= group {
				out[n] += group
				rest -= group
				progress = true
			}
		}
	}
	if rest > 0 {
		return nil
	}
	return out
}

func squares(free, shares map[int]int) (sum int) {
	for n, has := range free {
		sum += (has - shares[n]) * (has - shares[n])
	}
	return sum
}

// combinations yields each choice of k of the numbers, in their order.
func combinations(of []int, k int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		var choose func(from int, chosen []int) bool
		choose = func(from int, chosen []int) bool {
			if len(chosen) == k {
				return yield(slices.Clone(chosen))
			}
			for i := from; i <= len(of)-(k-len(chosen)); i++ {
				if !choose(i+1, append(chosen, of[i])) {
					return false
				}
			}
			return true
		}
		choose(0, nil)
	}
}

func ceil(n, by int) int { return (n + by - 1) / by }
