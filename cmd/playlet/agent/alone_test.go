package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// A second agent at the same root folder or the same runtime is refused, whatever links lead there, and the error names the one
// that runs.
func TestASecondAgentIsRefused(t *testing.T) {
	r := newRig(t, sim.Options{})
	silent := slog.New(slog.DiscardHandler)
	held, err := locks.Take(r.node(), silent)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(r.dir, "link.sock")
	if err := os.Symlink(strings.TrimPrefix(r.runtime.Endpoint(), "unix://"), link); err != nil {
		t.Fatal(err)
	}
	other := "--root-dir=" + filepath.Join(r.dir, "other")
	for what, flags := range map[string][]string{
		"--root-dir " + r.node().RootDir:  nil,
		"runtime " + r.runtime.Endpoint(): {other},
		"runtime unix://" + link:          {other, "--container-runtime-endpoint=unix://" + link},
	} {
		r.flags = flags
		want := fmt.Sprintf("another playlet runs with the same %s: PID %d, %s", what, os.Getpid(), os.Args[0])
		if l, err := locks.Take(r.node(), silent); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
		// The one that is refused has left nothing behind.
		if left, err := filepath.Glob(filepath.Join(r.dir, "other*")); err != nil || len(left) > 0 {
			t.Errorf("%s: it has made %q (%v)", what, left, err)
		}
	}
	r.flags = []string{"--container-runtime-endpoint=unix://" + filepath.Join(r.dir, "other.sock")}
	if _, err := locks.Take(r.node(), silent); err == nil || !strings.HasPrefix(err.Error(), "another playlet runs with the same --root-dir") {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "other*")); err != nil || len(left) > 0 {
		t.Errorf("it has made %q (%v)", left, err)
	}
	r.flags = []string{other}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := locks.Take(r.node(), silent) // with the other root folder
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// An agent may begin before its runtime has made the folder of its socket.
func TestTheRuntimesLockComesBeforeTheRuntime(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.flags = []string{"--container-runtime-endpoint=unix://" + filepath.Join(r.dir, "later", "runtime.sock")}
	held, err := locks.Take(r.node(), slog.New(slog.DiscardHandler))
	if err != nil || len(held) != 2 {
		t.Fatalf("%d locks, %v", len(held), err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
}

// An agent does not end the pods of one that is down, and has them once that one's lock file is gone.
func TestStoppedAgent_PodsStayUnchanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	running := func(pod string) func(sim.Snapshot) bool {
		return func(s sim.Snapshot) bool {
			return slices.ContainsFunc(s.Containers, func(c *sim.ContainerState) bool {
				return c.Running() && c.PodName == pod && c.Signals == 0
			})
		}
	}
	r.write("theirs", manifest("theirs", "Always", nil, []string{"c img"}))
	r.start(nil)
	r.await("the first agent's pod", running("theirs-node"))
	r.stop()
	r.remove("theirs")
	first := r.node().RootDir
	r.flags = []string{"--root-dir=" + filepath.Join(r.dir, "second")}
	r.write("own", manifest("own", "Always", nil, []string{"c img"}))
	r.start(nil)
	r.await("the second agent's pod", running("own-node"))
	r.stop()
	r.remove("own")
	r.start(nil) // ends its own pod, and with it all undesired ones
	r.await("the end of its pod", func(s sim.Snapshot) bool { return !running("own-node")(s) })
	r.stop()
	if !running("theirs-node")(r.runtime.Snapshot()) {
		t.Fatal("the other agent's pod was ended")
	}
	if err := os.Remove(filepath.Join(first, "playlet", "lock")); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.await("the end of the pod that nobody wants", func(s sim.Snapshot) bool { return !running("theirs-node")(s) })
}

// Two root folders with the same manifests name the same pod. The second agent does not run it, and names the owner.
func TestAPodThatAnotherAgentRuns(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.write("web", manifest("web", "Always", nil, []string{"c img"}))
	r.start(nil)
	r.await("the first agent's pod", func(s sim.Snapshot) bool {
		return slices.ContainsFunc(s.Containers, func(c *sim.ContainerState) bool { return c.Running() })
	})
	r.stop()
	first := r.node().RootDir
	r.flags = []string{"--root-dir=" + filepath.Join(r.dir, "second")}
	r.start(nil)
	board := r.agent.observatory.board
	now := board.Now()
	for ctx := t.Context(); len(now.Pods) == 0 || now.Pods[0].Waiting == nil || now.Pods[0].Waiting.Code != messages.ReasonCreateSandbox; {
		next, err := board.After(ctx, now.Version)
		if err != nil {
			t.Fatal(err)
		}
		now = next
	}
	want := "the pod belongs to the agent with --root-dir " + first + ": take its manifest away there or here; if that agent will " +
		"not run again, remove " + first + "/playlet/lock"
	if got := now.Pods[0].Waiting.Message; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if n := len(r.runtime.Snapshot().Sandboxes); n != 1 {
		t.Errorf("there are %d sandboxes", n)
	}
}
