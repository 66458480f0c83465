package devices

import (
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// hints returns the sets of NUMA nodes whose devices satisfy a request. aligns is false if no device of the resource reports a
// node: then the resource has no preference. Only nodes with devices are considered. A device of several nodes belongs to each of
// them; one without a node belongs to none. The preferred sets have as few nodes as the resource's devices need, whether they are
// free or not.
func (b *inventory) hints(r request) (out []topology.Hint, aligns bool) {
	k := b.resources[r.resource]
	if k == nil {
		return nil, false
	}
	var all topology.Mask
	for _, d := range k.devices {
		all |= d.mask()
	}
	if all == 0 {
		return nil, false
	}
	usable, reuse := b.given[r.holder][r.resource].ids(), []string(nil)
	switch {
	case len(usable) == 0:
		usable, reuse = b.free(r.resource), r.reuse
	case len(usable) != r.count:
		return nil, true
	}
	if len(usable)+len(reuse) < r.count {
		return nil, true
	}
	least := all.Len()
	for mask := range all.Subsets() {
		in := func(id string) bool { return k.devices[id].mask()&mask != 0 }
		total, matching := 0, 0
		for id := range k.devices {
			if in(id) {
				total++
			}
		}
		if total >= r.count {
			least = min(least, mask.Len())
		}
		for _, id := range slices.Concat(reuse, usable) {
			if in(id) {
				matching++
			}
		}
		outside := func(id string) bool { return len(k.devices[id].nodes) > 0 && !in(id) }
		if matching >= r.count && !slices.ContainsFunc(reuse, outside) {
			out = append(out, topology.Hint{Nodes: mask})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out, true
}

// mask returns the device's NUMA nodes.
func (d device) mask() (m topology.Mask) {
	for _, n := range d.nodes {
		m |= topology.MaskOf(int(n))
	}
	return m
}

// byAffinity splits free devices by a merged hint: those on its nodes, those on others, and those without a node. Without a
// hint, or if no device reports a node, all are of the first kind.
func (k *resourceState) byAffinity(free []string, nodes topology.Mask) (on, off, without []string) {
	if aligns := slices.ContainsFunc(free, func(id string) bool { return len(k.devices[id].nodes) > 0 }); nodes == 0 || !aligns {
		return free, nil, nil
	}
	for _, id := range free {
		switch d := k.devices[id]; {
		case len(d.nodes) == 0:
			without = append(without, id)
		case d.mask()&nodes != 0:
			on = append(on, id)
		default:
			off = append(off, id)
		}
	}
	return on, off, without
}
