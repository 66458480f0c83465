package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// TestTheRunningTreeIsTheTable draws the actors of a running agent with one pod by their kinds, and compares the
// drawing with the table.
func TestTheRunningTreeIsTheTable(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.serve(manifest("far", "Always", nil, []string{"main forever"}))
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"}))
	r.start(nil)
	r.await("the pod", func(s sim.Snapshot) bool { return s.Running() == 2 })
	var want []string
	supervisors.Tree.Walk(func(path string, row *supervisors.Row) {
		if row.Kind == "ender" {
			return // there is one only for a pod in quarantine that is to end
		}
		want = append(want, path)
		if !row.Dynamic {
			inspected(t, r.agent.system, path)
		}
	})
	slices.Sort(want)
	if got := drawn(r.agent.system); !slices.Equal(got, want) {
		t.Errorf("there run\n%s\nand the table has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// inspected waits until an actor that exists once has begun.
func inspected(t *testing.T, s *supervisors.System, path string) {
	t.Helper()
	address := messages.Address(path)
	if path == "node" {
		address = messages.Node
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	answer, err := s.Ask(ctx, address, messages.GetInspection{})
	if err != nil {
		t.Fatalf("%s is in the table and does not run: %v", path, err)
	}
	if in, ok := answer.(messages.Inspection); !ok || in.Path != path {
		t.Errorf("%s answers %+v", path, answer)
	}
}

// drawn returns the paths of kinds of the running actors, sorted, without duplicates.
func drawn(s *supervisors.System) []string {
	out := map[string]bool{}
	for _, a := range s.Actors() {
		path := string(s.KindOf(a))
		for p := a; p.Parent() != messages.Node; {
			p = p.Parent()
			path = string(s.KindOf(p)) + "/" + path
		}
		out[path] = true
	}
	return slices.Sorted(maps.Keys(out))
}

// TestTree_RowsMatchConstructors finds actors that would never run, since one of the two tables lacks them.
func TestTree_RowsMatchConstructors(t *testing.T) {
	r := newClusterRig(t, sim.Options{})
	r.serve("")
	r.start(nil)
	wired := r.agent.wire()
	rows := map[supervisors.Kind]bool{}
	supervisors.Tree.Walk(func(path string, row *supervisors.Row) {
		rows[row.Kind] = true
		if wired[row.Kind] == nil {
			t.Errorf("the row %s has no constructor", path)
		}
	})
	for kind := range wired {
		if !rows[kind] {
			t.Errorf("the constructor of %q has no row", kind)
		}
	}
}
