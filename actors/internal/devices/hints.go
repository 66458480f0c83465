package devices

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Hints returns the hints for a container, or for the whole pod if it is nil. A resource without a preference has no request.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) (out []topology.Request) {
	var limits v1.ResourceList
	var reuse map[string][]string
	h := holder{uid: string(pod.UID)}
	if c != nil {
		limits, h.container, reuse = c.Resources.Limits, c.Name, m.reuse(pod, c)
	} else {
		limits = resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	}
	names, counts := m.asks(limits)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		had := m.inventory.given[h][name].ids()
		if c == nil {
			had = m.inventory.ofPod(h.uid, name)
		}
		if hints, aligns := m.inventory.hints(name, counts[name], had, reuse[name]); aligns {
			out = append(out, topology.Request{Resource: name, Hints: hints})
		}
	}
	return out
}

// ofPod returns the devices of a pod, in order.
func (b *inventory) ofPod(uid, name string) (ids []string) {
	for h, has := range b.given {
		if h.uid == uid {
			ids = append(ids, has[name].ids()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// hints returns the sets of NUMA nodes with enough devices for a request. had are the devices that are already allocated. aligns
// is false if no device of the resource reports a node: then the resource has no preference. Only nodes of the machine with
// devices are considered. A device of several nodes belongs to each of them; one without a node belongs to none. The preferred
// sets have as few nodes as the resource's devices need, whether they are free or not.
func (b *inventory) hints(name string, count int, had, reuse []string) (out []topology.Hint, aligns bool) {
	k := b.resources[name]
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
	usable := had
	switch {
	case len(had) == 0:
		usable = b.free(name)
	case len(had) != count:
		return nil, true
	default:
		reuse = nil
	}
	if len(usable)+len(reuse) < count {
		return nil, true
	}
	// Devices on the same nodes are counted together: their number may be large, and others wait for the lock.
	total, matching, tied := map[topology.Mask]int{}, map[topology.Mask]int{}, map[topology.Mask]int{}
	for _, d := range k.devices {
		total[d.mask()]++
	}
	for _, id := range slices.Concat(reuse, usable) {
		matching[k.devices[id].mask()]++
	}
	for _, id := range reuse {
		tied[k.devices[id].mask()]++
	}
	all &= b.nodes
	least := all.Len()
	for mask := range all.Subsets() {
		if within(total, mask) >= count {
			least = min(least, mask.Len())
		}
		if within(matching, mask) >= count && within(tied, mask) == len(reuse)-tied[0] {
			out = append(out, topology.Hint{Nodes: mask})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out, true
}

// within returns the number of devices on any node of a set.
func within(counts map[topology.Mask]int, nodes topology.Mask) (n int) {
	for mask, count := range counts {
		if mask&nodes != 0 {
			n += count
		}
	}
	return n
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
