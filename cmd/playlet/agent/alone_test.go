package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// A second agent at the same root folder or the same runtime is refused, whatever links lead there, and the error names the one
// that runs.
func TestASecondAgentIsRefused(t *testing.T) {
	r := newRig(t, sim.Options{})
	silent := slog.New(slog.DiscardHandler)
	held, err := lockAgent(r.node(), silent)
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
		if l, err := lockAgent(r.node(), silent); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
		// The one that is refused has left nothing behind.
		if left, err := filepath.Glob(filepath.Join(r.dir, "other*")); err != nil || len(left) > 0 {
			t.Errorf("%s: it has made %q (%v)", what, left, err)
		}
	}
	r.flags = []string{"--container-runtime-endpoint=unix://" + filepath.Join(r.dir, "other.sock")}
	if _, err := lockAgent(r.node(), silent); err == nil || !strings.HasPrefix(err.Error(), "another playlet runs with the same --root-dir") {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, "other*")); err != nil || len(left) > 0 {
		t.Errorf("it has made %q (%v)", left, err)
	}
	r.flags = []string{other}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockAgent(r.node(), silent) // with the other root folder
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// A PID is told to those whom it says something.
func TestTheHolderOfALock(t *testing.T) {
	const text = "PID 7, playlet dev node /x, y\npid:[1]\n"
	for _, c := range []struct{ text, namespace, want string }{
		{text, "pid:[1]", "PID 7, playlet dev node /x, y"},
		{text, "pid:[2]", "PID 7 of the PID namespace pid:[1], and not of this one, playlet dev node /x, y"},
		{"PID 7, playlet\n", "pid:[2]", "PID 7, playlet"}, // of an earlier agent
		{"", "pid:[2]", ""}, // not written yet
	} {
		if got := holderIn(c.text, c.namespace); got != c.want {
			t.Errorf("%q, %s: %q, want %q", c.text, c.namespace, got, c.want)
		}
	}
}

// An agent may begin before its runtime has made the folder of its socket.
func TestTheRuntimesLockComesBeforeTheRuntime(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.flags = []string{"--container-runtime-endpoint=unix://" + filepath.Join(r.dir, "later", "runtime.sock")}
	held, err := lockAgent(r.node(), slog.New(slog.DiscardHandler))
	if err != nil || len(held) != 2 {
		t.Fatalf("%d locks, %v", len(held), err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
}

// What has the mark of another root folder is left alone for as long as that folder is there, and said once.
func TestWhatAnotherAgentRunsIsForeign(t *testing.T) {
	dir := t.TempDir()
	for _, root := range []string{"ours", "theirs"} {
		if err := os.MkdirAll(filepath.Join(dir, root, "playlet"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(rootLock(filepath.Join(dir, root)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	moved := filepath.Join(dir, "moved") // where our folder was when it wrote the mark
	if err := os.Symlink(filepath.Join(dir, "ours"), moved); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	is := foreign(filepath.Join(dir, "ours"), slog.New(slog.NewTextHandler(log, nil)))
	for root, want := range map[string]bool{"ours": false, "moved": false, "gone": false, "theirs": true} {
		if got := is(filepath.Join(dir, root)); got != want {
			t.Errorf("%s: %v", root, got)
		}
	}
	is(filepath.Join(dir, "theirs"))
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), filepath.Join(dir, "theirs")) {
		t.Errorf("the log says: %s", log)
	}
}

// An agent does not end the pods of one that is down, and has them once that one's root folder is gone.
func TestPodsOfAnAgentThatIsDownAreLeftAlone(t *testing.T) {
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
	r.start(nil) // ends its own pod, and with it all others that nobody wants
	r.await("the end of its pod", func(s sim.Snapshot) bool { return !running("own-node")(s) })
	r.stop()
	if !running("theirs-node")(r.runtime.Snapshot()) {
		t.Fatal("the other agent's pod was ended")
	}
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.await("the end of the pod that nobody wants", func(s sim.Snapshot) bool { return !running("theirs-node")(s) })
}

// Two root folders with the same manifests name the same pod. The second agent does not run it, and says whose it is.
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
	board := r.agent.board
	now := board.Now()
	for ctx := t.Context(); len(now.Pods) == 0 || now.Pods[0].Waiting == nil || now.Pods[0].Waiting.Code != messages.ReasonCreateSandbox; {
		next, err := board.After(ctx, now.Version)
		if err != nil {
			t.Fatal(err)
		}
		now = next
	}
	want := "the agent with --root-dir " + first + " runs this very pod: take its manifest away there or here"
	if got := now.Pods[0].Waiting.Message; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if n := len(r.runtime.Snapshot().Sandboxes); n != 1 {
		t.Errorf("there are %d sandboxes", n)
	}
}

// A root folder that nothing can be written to is named, with what helps. The mounts themselves are tried in e2e.
func TestARootFolderThatCannotBeWritten(t *testing.T) {
	made := func(path string, err error) error {
		return fmt.Errorf("making a folder of the agent: %w", &fs.PathError{Op: "mkdir", Path: path, Err: err})
	}
	const help = "; make room there, have it mounted writable, or name another (--root-dir)"
	other := errors.New("another playlet runs")
	for _, c := range []struct {
		err  error
		want string
	}{
		{made("/r", unix.EROFS), "the root folder /r cannot be written: read-only file system" + help},
		{made("/r/pods", unix.ENOSPC), "the root folder /r cannot be written: no space left on device" + help},
		{made("/r/pods", unix.EDQUOT), "the root folder /r cannot be written: disk quota exceeded" + help},
		{made("/run/logs", unix.EROFS), "/run/logs cannot be written: read-only file system"},
		{made("/r", unix.EACCES), "making a folder of the agent: mkdir /r: permission denied"},
		{other, other.Error()},
	} {
		if got := unwritable("/r", c.err); got.Error() != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
