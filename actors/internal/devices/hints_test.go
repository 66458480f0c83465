package devices

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// The hints for devices: a and b on node 0, c on node 1, d on both, n on none.
func TestHints(t *testing.T) {
	on := func(healthy bool, nodes ...int64) device { return device{healthy, nodes} }
	yes := func(nodes ...int) topology.Hint {
		return topology.Hint{Nodes: topology.MaskOf(nodes...), Preferred: true}
	}
	no := func(nodes ...int) topology.Hint { return topology.Hint{Nodes: topology.MaskOf(nodes...)} }
	var every []int64 // a plugin may list any numbers
	for n := range int64(70) {
		every = append(every, n-3)
	}
	devices := map[string]device{"a": on(true, 0), "b": on(true, 0), "c": on(true, 1), "d": on(true, 0, 1), "n": on(true)}
	for name, c := range map[string]struct {
		devices map[string]device
		usable  []string
		reuse   []string
		count   int
		want    []topology.Hint
		aligns  bool
	}{
		"no node is reported":   {map[string]device{"n": on(true)}, []string{"n"}, nil, 1, nil, false},
		"any":                   {devices, []string{"a", "b", "c", "d", "n"}, nil, 1, []topology.Hint{yes(0), yes(1), no(0, 1)}, true},
		"three on one node":     {devices, []string{"a", "b", "c", "d"}, nil, 3, []topology.Hint{yes(0), no(0, 1)}, true},
		"one would do, if free": {devices, []string{"a", "c", "d"}, nil, 3, []topology.Hint{no(0, 1)}, true},
		"reusable ones bind":    {devices, []string{"a", "b"}, []string{"c"}, 1, []topology.Hint{yes(1), no(0, 1)}, true},
		"too few":               {devices, []string{"a"}, nil, 2, nil, true},
		"not enough on nodes":   {devices, []string{"a", "n"}, nil, 2, nil, true},
		"a distant node":        {map[string]device{"f": on(true, 5)}, []string{"f"}, nil, 1, []topology.Hint{yes(5)}, true},
		"nodes of no machine":   {map[string]device{"f": on(true, every...)}, []string{"f"}, nil, 1, []topology.Hint{yes(0), yes(1), no(0, 1), yes(5), no(0, 5), no(1, 5), no(0, 1, 5)}, true},
		"none of the machine's": {map[string]device{"f": on(true, 7)}, []string{"f"}, nil, 1, nil, true},
	} {
		b := newInventory(topology.MaskOf(0, 1, 5))
		b.resources["r"] = &resourceState{devices: c.devices, usable: c.usable, listed: true}
		got, aligns := b.hints("r", c.count, nil, c.reuse)
		if aligns != c.aligns || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, aligns %v, want %v, %v", name, got, aligns, c.want, c.aligns)
		}
	}
	k := &resourceState{devices: devices}
	on0, off, without := k.byAffinity([]string{"a", "c", "d", "n"}, topology.MaskOf(0))
	if !slices.Equal(on0, []string{"a", "d"}) || !slices.Equal(off, []string{"c"}) || !slices.Equal(without, []string{"n"}) {
		t.Errorf("split into %v, %v and %v", on0, off, without)
	}
}

// allocatePod allocates to all containers of a pod, like the resources actor. After an error the pod has no devices.
func (m *Manager) allocatePod(ctx context.Context, pod *v1.Pod) (err error) {
	m.Fit(pod)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if err := m.Allocate(ctx, pod, &c, topology.Result{}); err != nil {
			m.Release(string(pod.UID))
			return err
		}
	}
	return m.Commit()
}

var noHint topology.Result
