package numamemory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Table is the memory of one type on a NUMA node, in bytes.
type Table struct {
	Total, Reserved uint64
	Allocatable     uint64 // of regular memory also less the huge pages
}

// Machine is the memory of each NUMA node by type: memory, hugepages-2Mi. It is immutable.
type Machine map[int]map[v1.ResourceName]Table

// Discover returns the memory of the machine. reserved is [reservedMemory]; withheld is the memory that the node withholds from
// pods: kubeReserved, systemReserved and the hard eviction threshold. It is an error if the two differ.
func Discover(nodes []cadvisor.Node, reserved []kubeletconfig.MemoryReservation, withheld resource.Quantity) (Machine, error) {
	keep, err := perNode(nodes, reserved, withheld)
	if err != nil {
		return nil, err
	}
	m := Machine{}
	for _, n := range nodes {
		m[n.Id] = map[v1.ResourceName]Table{}
		rest := n.Memory
		for _, h := range n.HugePages {
			page := int64(h.PageSize) * 1024 //nolint:gosec // the size of a page
			name := v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(page, resource.BinarySI).String())
			size := h.NumPages * h.PageSize * 1024
			if err := m.add(n.Id, name, size, size, keep[n.Id][name]); err != nil {
				return nil, err
			}
			rest -= min(rest, size)
		}
		if err := m.add(n.Id, v1.ResourceMemory, n.Memory, rest, keep[n.Id][v1.ResourceMemory]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m Machine) add(node int, name v1.ResourceName, total, usable, reserved uint64) error {
	if reserved > usable {
		return fmt.Errorf("reservedMemory: NUMA node %d has %s of %s, less than the reserved %s: reserve memory of other nodes",
			node, bytes(usable), name, bytes(reserved))
	}
	m[node][name] = Table{Total: total, Reserved: reserved, Allocatable: usable - reserved}
	return nil
}

// perNode returns the reserved bytes of each node and type.
func perNode(nodes []cadvisor.Node, reserved []kubeletconfig.MemoryReservation, withheld resource.Quantity) (
	map[int]map[v1.ResourceName]uint64, error) {
	out, sums := map[int]map[v1.ResourceName]uint64{}, map[v1.ResourceName]*resource.Quantity{v1.ResourceMemory: {}}
	for _, n := range nodes {
		out[n.Id] = map[v1.ResourceName]uint64{}
	}
	for _, r := range reserved {
		node, known := out[int(r.NumaNode)]
		if !known {
			return nil, fmt.Errorf("reservedMemory: this machine has no NUMA node %d", r.NumaNode)
		}
		for name, q := range r.Limits {
			if sums[name] == nil {
				sums[name] = &resource.Quantity{}
			}
			sums[name].Add(q)
			node[name] = uint64(max(q.Value(), 0))
		}
	}
	if withheld.IsZero() {
		return nil, errors.New("the policy needs memory that is reserved for the system: set kubeReserved or systemReserved, " +
			"and reservedMemory to their sum with the hard eviction threshold memory.available")
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		want := resource.Quantity{}
		if name == v1.ResourceMemory {
			want = withheld
		}
		if sum := sums[name]; sum.Cmp(want) != 0 {
			return nil, fmt.Errorf("reservedMemory: the sum of %s is %s, and kubeReserved, systemReserved and the hard eviction "+
				"threshold of the node reserve %s: make both equal", name, sum, &want)
		}
	}
	return out, nil
}

// nodes returns all NUMA nodes.
func (m Machine) nodes() (out topology.Mask) {
	for n := range m {
		out |= topology.MaskOf(n)
	}
	return out
}

// bytes returns a number of bytes as a quantity.
func bytes(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String() //nolint:gosec // the memory of a machine
}

// isMemory reports whether a resource is allocated from NUMA nodes here.
func isMemory(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
