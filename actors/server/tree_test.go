package server

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// deaf is an actor that answers nothing of its own.
type deaf struct{}

func (deaf) Receive(supervisors.Context, any) {}

// startTree runs the server actor in a small tree.
func startTree(t *testing.T, r *rig) *supervisors.System {
	t.Helper()
	often := supervisors.Strategy{Panics: 100, Within: time.Minute, Then: supervisors.Escalate}
	other := func(string) supervisors.Actor { return deaf{} }
	sys, err := supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node", Strategy: often, Children: []supervisors.Row{
			{Kind: "pods", Strategy: often}, {Kind: "server", Strategy: often},
		}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{
			"node": other, "pods": other, "server": New(Options{Listeners: r.listeners}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := sys.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	r.listeners.Attach(sys)
	return sys
}

// until waits for what the tree does by itself; it is bounded and proves nothing by its length.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, waitLimit)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAStreamOutlivesTheActorThatOpenedItsListener(t *testing.T) {
	r := newRig(t, nil)
	sys := startTree(t, r)
	until(t, "listening", func() bool { return r.listeners.State()[0].Open })
	lines := r.watch(api.Filter{})
	r.line(lines)
	inspect := func() *api.Inspection {
		in, err := r.client.Inspect(t.Context(), messages.Server)
		if err != nil {
			return &api.Inspection{} // between two lives
		}
		return in
	}
	first := inspect()
	if first.Incarnation == 0 || first.Kind != "server" {
		t.Fatalf("%+v", first)
	}
	opened := r.listeners.State()[0].Since
	sys.Kill(messages.Server, "a test")
	until(t, "a new life", func() bool { n := inspect().Incarnation; return n != 0 && n != first.Incarnation })
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "web", "u1", nil)}})
	if c := r.line(lines); c.Full || len(c.Pods) != 1 {
		t.Errorf("the old stream tells %+v", c)
	}
	if now := r.listeners.State()[0].Since; !now.Equal(opened) {
		t.Error("the listener was opened anew")
	}
}

func TestTracesAndTheTreeComeFromTheRunningSystem(t *testing.T) {
	r := newRig(t, nil)
	sys := startTree(t, r)
	until(t, "listening", func() bool { return r.listeners.State()[0].Open })
	sys.Tell(messages.Pods, messages.GetDesired{UID: "u1"})
	until(t, "a recorded message", func() bool {
		found := false
		err := r.client.Trace(t.Context(), api.TraceOptions{Pod: "u1"}, func(got *api.Trace) error {
			found = len(got.Entries) == 1 && got.Entries[0].Message == "GetDesired" && got.Entries[0].To == messages.Pods
			return nil
		})
		return err == nil && found
	})
	tree, err := r.client.Actors(t.Context())
	if err != nil || len(tree.Actors) != 3 || tree.Actors[0].Kind != "node" || tree.Actors[2].Path != messages.Server {
		t.Errorf("%+v, %v", tree, err)
	}
	r.board.Publish(board.Snapshot{})
	if got := body(t, r.raw("GET", "/healthz")); got != "ok" {
		t.Errorf("%q", got)
	}
}
