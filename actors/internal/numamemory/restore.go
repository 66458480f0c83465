package numamemory

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/numamemory/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// data returns the content of the checkpoint.
func (p Static) data(g Assignments) checkpoint.Data {
	out := checkpoint.Data{Policy: PolicyStatic, Nodes: map[int]*checkpoint.Node{},
		Entries: map[string]map[string][]checkpoint.Block{}}
	u := p.machine.usage(g)
	for n, types := range p.machine {
		one := &checkpoint.Node{NumberOfAssignments: u.blocks[n], Cells: []int{n},
			MemoryMap: map[v1.ResourceName]*checkpoint.Table{}}
		if group, used := u.group[n]; used {
			one.Cells = slices.Collect(group.Nodes())
		}
		for name, t := range types {
			free := u.free[n][name]
			one.MemoryMap[name] = &checkpoint.Table{TotalMemSize: t.Total, SystemReserved: t.Reserved, Allocatable: t.Allocatable,
				Reserved: t.Allocatable - free, Free: free}
		}
		out.Nodes[n] = one
	}
	for uid, pod := range g {
		out.Entries[uid] = map[string][]checkpoint.Block{}
		for name, blocks := range pod {
			for _, b := range blocks {
				out.Entries[uid][name] = append(out.Entries[uid][name],
					checkpoint.Block{NUMAAffinity: slices.Collect(b.Nodes.Nodes()), Type: b.Type, Size: b.Size})
			}
		}
	}
	return out
}

// given returns the allocations of a checkpoint.
func given(data checkpoint.Data) Assignments {
	out := Assignments{}
	for uid, pod := range data.Entries {
		out[uid] = map[string][]Block{}
		for name, blocks := range pod {
			for _, b := range blocks {
				out[uid][name] = append(out[uid][name], Block{topology.MaskOf(b.NUMAAffinity...), b.Type, b.Size})
			}
		}
	}
	return out
}

// Restore checks a checkpoint against the machine: its memory, its reservations and its allocations must fit.
func (p Static) Restore(data checkpoint.Data) error {
	if len(data.Nodes) == 0 && len(data.Entries) == 0 {
		return nil
	}
	for uid, pod := range data.Entries {
		for name, blocks := range pod {
			for _, b := range blocks {
				for _, n := range b.NUMAAffinity {
					if _, known := p.machine[n][b.Type]; !known {
						return fmt.Errorf("container %s of pod %s has %s of NUMA node %d, and this machine has none there", name,
							uid, b.Type, n)
					}
				}
			}
		}
	}
	want := p.data(given(data))
	for _, n := range slices.Sorted(maps.Keys(want.Nodes)) {
		if err := same(n, data.Nodes, want.Nodes); err != nil {
			return err
		}
	}
	if len(data.Nodes) != len(want.Nodes) {
		return fmt.Errorf("the file has %d NUMA nodes, and this machine has %d", len(data.Nodes), len(want.Nodes))
	}
	return nil
}

// same compares a NUMA node of a file with the expected one. The memory of nodes that serve containers together is compared as a
// whole, because its distribution depends on the order of the allocations.
func same(n int, file, want map[int]*checkpoint.Node) error {
	has, expected := file[n], want[n]
	if has == nil {
		return fmt.Errorf("the file lacks NUMA node %d", n)
	}
	if has.NumberOfAssignments != expected.NumberOfAssignments || len(has.MemoryMap) != len(expected.MemoryMap) ||
		!topologyEqual(has.Cells, expected.Cells) {
		return fmt.Errorf("the allocations on NUMA node %d are %d of the nodes %v, and should be %d of the nodes %v", n,
			has.NumberOfAssignments, has.Cells, expected.NumberOfAssignments, expected.Cells)
	}
	for _, name := range slices.Sorted(maps.Keys(expected.MemoryMap)) {
		is, t := has.MemoryMap[name], expected.MemoryMap[name]
		if is == nil || [3]uint64{is.TotalMemSize, is.SystemReserved, is.Allocatable} !=
			[3]uint64{t.TotalMemSize, t.SystemReserved, t.Allocatable} {
			return fmt.Errorf("the %s of NUMA node %d or its reserved part has changed: the file has %+v, and this machine %+v",
				name, n, is, *t)
		}
		var sums [4]uint64
		for _, cell := range expected.Cells {
			for i, nodes := range []map[int]*checkpoint.Node{file, want} {
				if node := nodes[cell]; node != nil && node.MemoryMap[name] != nil {
					sums[i] += node.MemoryMap[name].Free
					sums[i+2] += node.MemoryMap[name].Reserved
				}
			}
		}
		if sums[0] != sums[1] || sums[2] != sums[3] {
			return fmt.Errorf("the free %s of NUMA node %d does not match the allocations", name, n)
		}
	}
	return nil
}

func topologyEqual(a, b []int) bool { return topology.MaskOf(a...) == topology.MaskOf(b...) }
