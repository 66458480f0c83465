package server

import (
	"context"
	"io"
	"net/http"
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

// until waits for an effect in the tree; its limit proves nothing.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, waitLimit)
		}
		time.Sleep(time.Millisecond)
	}
}

// killServer kills the server's actor, and waits for its restart.
func killServer(t *testing.T, r *rig, sys *supervisors.System) {
	t.Helper()
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
	sys.Kill(messages.Server, "a test")
	until(t, "a new life", func() bool { n := inspect().Incarnation; return n != 0 && n != first.Incarnation })
}

func TestStream_OutlivesListenersActor(t *testing.T) {
	r := newRig(t, nil)
	sys := startTree(t, r)
	until(t, "listening", func() bool { return r.listeners.State()[0].Open })
	lines := r.watch(api.Filter{})
	r.line(lines)
	opened := r.listeners.State()[0].Since
	killServer(t, r, sys)
	r.board.Publish(board.Snapshot{Pods: []board.Pod{pod("default", "web", "u1", nil)}})
	if c := r.line(lines); c.Full || len(c.Pods) != 1 {
		t.Errorf("the old stream tells %+v", c)
	}
	if now := r.listeners.State()[0].Since; !now.Equal(opened) {
		t.Error("the listener was opened anew")
	}
}

// Streams with containers survive a kill of the actor: they belong to the process.
func TestStreamsWithContainersOutliveTheActor(t *testing.T) {
	r, _ := execRig(t)
	sys := startTree(t, r)
	forwarded, err := r.client.PortForward(t.Context(), "ns", "web", "u1")
	if err != nil {
		t.Fatal(err)
	}
	defer forwarded.Close() //nolint:errcheck // all was read
	port, err := forwarded.CreateStream(http.Header{"streamType": {"data"}, "port": {"80"}, "requestID": {"0"}})
	if err != nil {
		t.Fatal(err)
	}
	fromHere, stdin := io.Pipe()
	stdout, toHere := io.Pipe()
	attached := make(chan error, 1)
	go func() {
		o := api.ExecOptions{Container: "app", UID: "u1", Stdin: true}
		attached <- r.client.Attach(t.Context(), "ns", "web", o, api.Terminal{Stdin: fromHere, Stdout: toHere, Stderr: io.Discard})
	}()
	talk := func(word string) {
		t.Helper()
		for name, s := range map[string]struct {
			io.Writer
			io.Reader
		}{"port-forward": {port, port}, "attach": {stdin, stdout}} {
			if _, err := io.WriteString(s, word); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			back := make([]byte, len(word))
			if _, err := io.ReadFull(s, back); err != nil || string(back) != word {
				t.Errorf("%s: %q, %v", name, back, err)
			}
		}
	}
	prefix := make([]byte, len("80:"))
	if _, err := io.ReadFull(port, prefix); err != nil {
		t.Fatal(err)
	}
	talk("before")
	killServer(t, r, sys)
	talk("after")
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-attached; err != nil {
		t.Error(err)
	}
}

func TestTracesAndTree_ReadRunningSystem(t *testing.T) {
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
