package cpus

import (
	"fmt"
	"maps"
	"slices"

	cadvisor "github.com/google/cadvisor/lib/model"
	"k8s.io/utils/cpuset"
)

// CPU is the place of a logical CPU.
type CPU struct {
	Node   int // NUMA node
	Socket int
	Core   int // the lowest CPU of the physical core: unlike the kernel's number, it is unique on the node
	Cache  int // the last-level cache
}

// Topology is the place of each CPU of a node. It is immutable.
type Topology map[int]CPU

// level is a kind of group of CPUs.
type level int

const (
	node level = iota
	socket
	cache
	core
)

// of returns the number of a CPU's group.
func (l level) of(c CPU) int { return [...]int{c.Node, c.Socket, c.Cache, c.Core}[l] }

// Discover returns the topology of a machine. CPUs without a reported last-level cache count as one cache for each socket.
func Discover(m *cadvisor.MachineInfo) (Topology, error) {
	t := Topology{}
	for _, n := range m.Topology {
		for _, c := range n.Cores {
			if len(c.Threads) == 0 {
				return nil, fmt.Errorf("core %d of NUMA node %d has no CPU", c.Id, n.Id)
			}
			cpu := CPU{Node: n.Id, Socket: c.SocketID, Core: slices.Min(c.Threads), Cache: c.SocketID}
			if len(c.UncoreCaches) > 0 {
				cpu.Cache = c.UncoreCaches[0].Id
			}
			for _, id := range c.Threads {
				if _, twice := t[id]; twice {
					return nil, fmt.Errorf("CPU %d is reported twice", id)
				}
				t[id] = cpu
			}
		}
	}
	if len(t) == 0 {
		return nil, fmt.Errorf("the machine's CPUs are not known")
	}
	return t, nil
}

// All returns the node's CPUs.
func (t Topology) All() cpuset.CPUSet { return cpuset.New(slices.Collect(maps.Keys(t))...) }

// Siblings returns the CPUs of all cores that have a CPU in set.
func (t Topology) Siblings(set cpuset.CPUSet) cpuset.CPUSet {
	cores := map[int]bool{}
	for _, id := range set.UnsortedList() {
		if c, known := t[id]; known {
			cores[c.Core] = true
		}
	}
	var out []int
	for id, c := range t {
		if cores[c.Core] {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}

// PerCore returns the number of CPUs of a core, rounded down where cores differ.
func (t Topology) PerCore() int { return len(t) / max(1, t.count(core)) }

// PerNode returns how many CPUs of set are on each NUMA node of the machine.
func (t Topology) PerNode(set cpuset.CPUSet) map[int]int {
	out := t.sizes(slices.Collect(maps.Keys(t)), node)
	for id := range out {
		out[id] = 0
	}
	maps.Copy(out, t.sizes(set.UnsortedList(), node))
	return out
}

func (t Topology) count(l level) int { return len(t.sizes(slices.Collect(maps.Keys(t)), l)) }

// sizes counts CPUs by their group.
func (t Topology) sizes(ids []int, l level) map[int]int {
	out := map[int]int{}
	for _, id := range ids {
		out[l.of(t[id])]++
	}
	return out
}
