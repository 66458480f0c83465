package cpus

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// hintTexts returns hints as sorted node numbers, preferred ones with a star.
func hintTexts(hints []topology.Hint) string {
	var all []string
	for _, h := range hints {
		text := ""
		for n := range h.Nodes.Nodes() {
			text += fmt.Sprint(n)
		}
		if h.Preferred {
			text += "*"
		}
		all = append(all, text)
	}
	slices.SortFunc(all, func(x, y string) int {
		return len(strings.TrimSuffix(x, "*"))*10 - len(strings.TrimSuffix(y, "*"))*10 + strings.Compare(x, y)
	})
	return strings.Join(all, " ")
}

// The hints for a number of CPUs on machines of one, two and four NUMA nodes, with and without threads.
func TestHints(t *testing.T) {
	one, two := shape{1, 1, 1, 4, 2}, shape{2, 1, 1, 4, 1} // nodes 0-7; 0-3, 4-7
	threads := shape{2, 1, 1, 2, 2}                        // nodes 0-1,4-5; 2-3,6-7
	four := shape{2, 2, 1, 2, 1}                           // nodes 0-1, 2-3, 4-5, 6-7; the sockets have two each
	for name, c := range map[string]struct {
		shape       shape
		options     Options
		free, reuse string
		n           int
		want        string
	}{
		"one node":                               {one, Options{}, "0-7", "", 3, "0*"},
		"one node without enough":                {one, Options{}, "0-1", "", 3, ""},
		"two nodes":                              {two, Options{}, "0-7", "", 3, "0* 1* 01"},
		"one of two has enough":                  {two, Options{}, "0-1,4-7", "", 3, "1* 01"},
		"both have to give, though one would do": {two, Options{}, "0-1,4-5", "", 3, "01"},
		"more than a node has":                   {two, Options{}, "0-7", "", 5, "01*"},
		"threads":                                {threads, Options{}, "0-1,4-5,2,6", "", 4, "0* 01"},
		"reusable CPUs bind":                     {two, Options{}, "0-3,5-7", "4", 2, "1* 01"},
		"reusable CPUs of both nodes":            {two, Options{}, "1-3,5-7", "0,4", 2, "01"},
		"four nodes":                             {four, Options{}, "0-1,3-7", "", 2, "0* 2* 3* 01 02 03 12 13 23 012 013 023 123 0123"},
		"pairs of four nodes":                    {four, Options{}, "0-7", "", 4, "01* 02* 03* 12* 13* 23* 012 013 023 123 0123"},
		"pairs, aligned by socket":               {four, Options{BySocket: true}, "0-3,6-7", "", 2, "0* 1* 3* 01* 02 03 12 13 23* 012 013 023 123 0123"},
	} {
		p := Static{topology: c.shape.topology(), options: c.options}
		if got := hintTexts(p.hints(parse(t, c.free), parse(t, c.reuse), c.n)); got != c.want {
			t.Errorf("%s: got hints %q, want %q", name, got, c.want)
		}
	}
}

// CPUs come from the nodes of the hint first, and others complete them.
func TestTakeFrom(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		nodes   topology.Mask
		free    string
		n       int
		want    string
	}{
		"no restriction":          {Options{}, 0, "0-7", 2, "0-1"},
		"the node of the hint":    {Options{}, topology.MaskOf(2), "0-7", 2, "4-5"},
		"completed":               {Options{}, topology.MaskOf(2), "0-1,4,6-7", 2, "0,4"},
		"two nodes":               {Options{}, topology.MaskOf(1, 3), "0-7", 4, "2-3,6-7"},
		"completed in the socket": {Options{BySocket: true}, topology.MaskOf(2), "0-1,4,6-7", 3, "4,6-7"},
	} {
		p := Static{topology: shape{2, 2, 1, 2, 1}.topology(), options: c.options}
		got, err := p.takeFrom(c.nodes, parse(t, c.free), c.n)
		if err != nil || !got.Equals(parse(t, c.want)) {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
	if _, err := (Static{topology: shape{2, 2, 1, 2, 1}.topology()}).takeFrom(1, cpuset.New(0), 2); err == nil {
		t.Error("two CPUs were taken from one")
	}
}

// allocatePod allocates to all containers of a pod, like the resources actor. After an error the pod has no CPUs.
func (m *Manager) allocatePod(t *testing.T, pod *v1.Pod) error {
	m.Fit(pod)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if err := m.Allocate(t.Context(), pod, &c, topology.Result{}); err != nil {
			m.Release(string(pod.UID))
			return err
		}
	}
	if err := m.Commit(); err != nil {
		m.Release(string(pod.UID))
		return err
	}
	return nil
}

// allocatePod is the same for the policy.
func (p Static) allocatePod(g Assignments, pod *v1.Pod) (Assignments, error) {
	g = g.fitting(pod)
	before := g
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		var err error
		if g, err = p.Allocate(g, pod, &c, topology.Result{}); err != nil {
			return before, err
		}
	}
	return g, nil
}
