package cpus

import (
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

// shape describes a machine. CPUs are numbered as Linux does: first one of each core, then their siblings.
type shape struct{ sockets, nodes, caches, cores, threads int } // nodes a socket, caches a node, cores a cache

func (s shape) topology() Topology {
	t := Topology{}
	cores := s.sockets * s.nodes * s.caches * s.cores
	for c := range cores {
		for thread := range s.threads {
			ca := c / s.cores
			t[c+thread*cores] = CPU{Core: c, Cache: ca, Node: ca / s.caches, Socket: ca / s.caches / s.nodes}
		}
	}
	return t
}

// twoInOne returns four sockets, two on each NUMA node.
func twoInOne() Topology {
	t := shape{4, 1, 1, 5, 2}.topology()
	for id, c := range t {
		c.Node = c.Socket / 2
		t[id] = c
	}
	return t
}

func parse(t testing.TB, s string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTake(t *testing.T) {
	single := shape{1, 1, 1, 4, 2} // siblings 0,4 1,5 2,6 3,7
	dual := shape{2, 1, 1, 3, 2}   // sockets 0-2,6-8 and 3-5,9-11
	quad := shape{2, 2, 1, 4, 2}   // nodes 0-3,16-19 4-7,20-23 8-11,24-27 12-15,28-31
	caches := shape{1, 1, 4, 2, 2} // caches 0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15
	for _, c := range []struct {
		about string
		on    shape
		free  string
		n     int
		o     Options
		want  string
	}{
		{"nothing", single, "0-7", 0, Options{}, ""},
		{"one CPU", single, "0-7", 1, Options{}, "0"},
		{"a core", single, "0-7", 2, Options{}, "0,4"},
		{"a core and a half", single, "0-7", 3, Options{}, "0-1,4"},
		{"the sibling of a used CPU first", single, "1-7", 1, Options{}, "4"},
		{"whole cores before rests", single, "1-7", 2, Options{}, "1,5"},
		{"a socket", dual, "0-11", 6, Options{}, "0-2,6-8"},
		{"the fuller socket", dual, "0-3,5-11", 2, Options{}, "3,9"},
		{"one socket, though the other is fuller", dual, "0-2,6-8,3,9", 4, Options{}, "0-1,6-7"},
		{"a socket and more", dual, "0-11", 7, Options{}, "0-3,6-8"},
		{"one CPU of each core", single, "0-7", 3, Options{AcrossCores: true}, "0-2"},
		{"then second ones", single, "0-7", 5, Options{AcrossCores: true}, "0-4"},
		{"one node", quad, "0-31", 8, Options{AcrossNodes: true}, "0-3,16-19"},
		{"two equal parts", quad, "0-31", 10, Options{AcrossNodes: true}, "0-2,4-6,16-17,20-21"},
		{"two equal parts of whole cores", quad, "0-31", 12, Options{AcrossNodes: true, FullCores: true}, "0-2,4-6,16-18,20-22"},
		{"the less loaded nodes", quad, "1-15,17-31", 10, Options{AcrossNodes: true}, "4-6,8-10,20-21,24-25"},
		{"no equal parts", quad, "0-3,16-19,4", 9, Options{AcrossNodes: true}, "0-4,16-19"},
		{"without alignment to caches", caches, "0,2-15", 4, Options{}, "0,2,8,10"},
		{"a cache", caches, "1-7,9-15", 4, Options{AlignCaches: true}, "2-3,10-11"},
		{"the fuller cache", caches, "0-7,9-15", 2, Options{AlignCaches: true}, "1,9"},
		{"a cache and a part", caches, "0-15", 6, Options{AlignCaches: true}, "0-2,8-10"},
		{"two caches", caches, "1-7,9-15", 8, Options{AlignCaches: true}, "2-5,10-13"},
		{"the remainder from the less loaded node", shape{1, 2, 1, 4, 2}, "0-8,12-15", 9, Options{AcrossNodes: true},
			"0-2,4-6,8,12-13"},
		{"an odd part", caches, "0-15", 3, Options{AlignCaches: true}, "0-1,8"},
	} {
		got, err := Take(c.on.topology(), parse(t, c.free), c.n, c.o)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %d of %s: got %s, want %s: %v", c.about, c.n, c.free, got, c.want, err)
		}
	}
	if got, err := Take(twoInOne(), parse(t, "0-39"), 20, Options{}); err != nil || got.String() != "0-9,20-29" {
		t.Errorf("a NUMA node of two sockets: %s, %v", got, err)
	}
	_, err := Take(single.topology(), parse(t, "0-2"), 4, Options{})
	if want := "not enough cpus available to satisfy request: requested=4, available=3"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func drawTopology(t *rapid.T) Topology {
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		return twoInOne()
	}
	return shape{rapid.IntRange(1, 2).Draw(t, "sockets"), rapid.IntRange(1, 2).Draw(t, "nodes"),
		rapid.IntRange(1, 3).Draw(t, "caches"), rapid.IntRange(1, 3).Draw(t, "cores"),
		rapid.IntRange(1, 2).Draw(t, "threads")}.topology()
}

func drawOptions(t *rapid.T) Options {
	o := Options{Strict: rapid.Bool().Draw(t, "strict"), FullCores: rapid.Bool().Draw(t, "full")}
	switch rapid.IntRange(0, 3).Draw(t, "spread") {
	case 1:
		o.AcrossNodes = true
	case 2:
		o.AlignCaches = true
	case 3:
		o.AcrossCores, o.FullCores = true, false
	}
	return o
}

func drawSet(t *rapid.T, from cpuset.CPUSet, label string) cpuset.CPUSet {
	var out []int
	for _, id := range from.List() {
		if rapid.IntRange(0, 2).Draw(t, label) > 0 {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}

// A choice has the right size, free CPUs only, and as few NUMA nodes, sockets and split cores as possible.
func TestTake_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, o := drawTopology(t), drawOptions(t)
		free := drawSet(t, top.All(), "free")
		n := rapid.IntRange(0, free.Size()).Draw(t, "n")
		got, err := Take(top, free, n, o)
		if err != nil || got.Size() != n || !got.IsSubsetOf(free) {
			t.Fatalf("%d of %s: got %s, %v", n, free, got, err)
		}
		if n == 0 {
			return
		}
		for _, l := range []level{node, socket} {
			if l == socket && o.AcrossNodes {
				continue
			}
			for _, has := range top.sizes(free.List(), l) {
				if used := len(top.sizes(got.List(), l)); has >= n && used > 1 {
					t.Fatalf("%d of %s: %s are on %d groups of kind %d; one has enough", n, free, got, used, l)
				}
			}
		}
		if whole := wholeCores(top, free); o.FullCores && whole.Equals(free) && n%top.PerCore() == 0 &&
			!wholeCores(top, got).Equals(got) {
			t.Fatalf("%d of %s: %s has split cores", n, free, got)
		}
	})
}

// wholeCores returns the CPUs of set that belong to cores entirely in set.
func wholeCores(top Topology, set cpuset.CPUSet) cpuset.CPUSet {
	var out []int
	for _, id := range set.List() {
		if top.Siblings(cpuset.New(id)).IsSubsetOf(set) {
			out = append(out, id)
		}
	}
	return cpuset.New(out...)
}

func ExampleTake() {
	got, _ := Take(shape{2, 1, 1, 2, 2}.topology(), cpuset.New(0, 1, 2, 3, 5, 6, 7), 2, Options{})
	fmt.Println(got)
	// Output: 1,5
}
