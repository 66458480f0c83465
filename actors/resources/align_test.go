package resources

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

// alignedProvider is a provider of one resource, on the NUMA nodes of its hints.
type alignedProvider struct {
	plugins
	resource string
	nodes    []topology.Mask
	got      []topology.Result
	busy     int // allocations in which another pod is faster
}

func (a *alignedProvider) Hints(*v1.Pod, *v1.Container) []topology.Request {
	r := topology.Request{Resource: a.resource}
	for _, n := range a.nodes {
		r.Hints = append(r.Hints, topology.Hint{Nodes: n, Preferred: true})
	}
	return []topology.Request{r}
}

func (a *alignedProvider) Allocate(_ context.Context, _ *v1.Pod, _ *v1.Container, hint topology.Result) error {
	a.got = append(a.got, hint)
	if a.busy > 0 {
		a.busy--
		return topology.ChangedError{Err: errors.New("taken")}
	}
	return nil
}

// All providers get the merged hint, for each container. A pod that another one overtook releases everything and is tried
// again. A refusal names the resource and the nodes.
func TestAlign(t *testing.T) {
	policy, err := topology.NewPolicy(topology.PolicyRestricted, topology.Machine{Nodes: topology.MaskOf(0, 1)}, topology.Options{MaxNodes: 8})
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	pod.UID, pod.Spec.Containers = "u", []v1.Container{{Name: "a"}, {Name: "b"}}
	for _, scope := range []string{topology.ScopeContainer, topology.ScopePod} {
		one := &alignedProvider{resource: "cpu", nodes: []topology.Mask{topology.MaskOf(0), topology.MaskOf(1)}}
		two := &alignedProvider{resource: "memory", nodes: []topology.Mask{topology.MaskOf(1)}, busy: 1}
		a := allocation{providers: []Provider{one, two}, alignment: Alignment{policy, scope}}
		if out := a.give(t.Context(), messages.AllocateResources{UID: "u", Pod: pod}); out.Refused != "" {
			t.Errorf("%s: refused: %s", scope, out.Refused)
		}
		want := slices.Repeat([]topology.Result{{Nodes: topology.MaskOf(1), Preferred: true}}, 3)
		if !slices.Equal(one.got, want) || !slices.Equal(two.got, want) || len(one.released) != 1 {
			t.Errorf("%s: got hints %v and %v, released %v", scope, one.got, two.got, one.released)
		}
		one.nodes = []topology.Mask{topology.MaskOf(0)}
		out := a.give(t.Context(), messages.AllocateResources{UID: "u", Pod: pod})
		if out.Reason != "TopologyAffinityError" || out.Refused != topology.MessageAffinity ||
			out.Cause.Code != messages.CauseNoAffinity || len(one.released) != 2 {
			t.Errorf("%s: got %+v, released %v", scope, out, one.released)
		}
	}
}
