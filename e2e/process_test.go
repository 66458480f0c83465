//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// TERM ends the agent with 0 and touches no container; the next agent finds everything unchanged.
func TestTermEndsTheAgentAlone(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("p.yaml", manifest(s, "p", sleeper)))
		before := up(t, s, "p", "c")
		awaitPod(t, a, "p", ready)
		code, err := a.Term()
		if err != nil || code != 0 {
			t.Errorf("it ended with code %d, %v", code, err)
		}
		if after := up(t, s, "p", "c"); after.Id != before.Id {
			t.Error("the container is another")
		}
		must(t, a.Start())
		awaitPod(t, a, "p", ready)
		if after := up(t, s, "p", "c"); after.Id != before.Id {
			t.Error("the container is another")
		}
	})
}

// Two agents on one root directory would undo each other's work: the second reports that and exits; the first is not affected.
func TestSecondAgent_RefusesSameRootFolder(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	must(t, a.Write("p.yaml", manifest(s, "p", sleeper)))
	before := up(t, s, "p", "c")
	second, err := s.NewAgent()
	must(t, err)
	second.Args = append(second.Args, "--root-dir="+a.RootDir)
	must(t, second.Start())
	code, err := second.Wait(t.Context())
	if err != nil || code != 1 {
		t.Errorf("it ended with code %d, %v", code, err)
	}
	if log := second.Log(); !strings.Contains(log, a.RootDir) || !strings.Contains(log, "another playlet") {
		t.Errorf("it said: %s", log)
	}
	settled(t, a)
	if after := up(t, s, "p", "c"); after.Id != before.Id {
		t.Error("the container is another")
	}
	// The lock is no file that stays taken: a successor gets it.
	must(t, a.Kill9())
	must(t, a.Start())
	awaitPod(t, a, "p", ready)
}

// On a disk that is read-only or full the start ends with a sentence that names the root folder.
func TestARootFolderThatCannotBeWritten(t *testing.T) {
	s := stack.Start(t, stack.Options{Runtime: stack.Containerd2})
	for options, why := range map[string]string{"ro": "read-only file system", "nr_inodes=1": "no space left on device"} {
		a, err := s.NewAgent()
		must(t, err)
		dir := filepath.Join(t.TempDir(), "disk")
		must(t, os.Mkdir(dir, 0o700))
		flags := uintptr(0)
		if options == "ro" {
			flags, options = unix.MS_RDONLY, ""
		}
		must(t, unix.Mount("tmpfs", dir, "tmpfs", flags, options))
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		a.Args = append(a.Args, "--root-dir="+dir)
		must(t, a.Start())
		code, err := a.Wait(t.Context())
		want := "the root folder " + dir + " cannot be written: " + why
		if err != nil || code != 1 || !strings.Contains(a.Log(), want) {
			t.Errorf("%s: it ended with %d, %v: %s", why, code, err, a.Log())
		}
	}
}

// Two agents at one runtime: the second is refused for as long as the first lives, and never ends its pods, in whatever order
// they start and are killed.
func TestTwoAgentsAtOneRuntime(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	agents := [2]*stack.Agent{s.Agent(t)}
	second, err := s.NewAgent()
	must(t, err)
	agents[1] = second
	for i, name := range []string{"p", "q"} {
		must(t, agents[i].Write(name+".yaml", manifest(s, name, sleeper)))
	}
	ids := map[string]string{}
	same := func() {
		t.Helper()
		for name, id := range ids {
			if now := up(t, s, name, "c"); now.Id != id {
				t.Fatalf("%s has another container", name)
			}
		}
	}
	ids["p"] = up(t, s, "p", "c").Id
	for turn := range 4 {
		holder, other := agents[turn%2], agents[(turn+1)%2]
		awaitPod(t, holder, []string{"p", "q"}[turn%2], ready)
		ids[[]string{"p", "q"}[turn%2]] = up(t, s, []string{"p", "q"}[turn%2], "c").Id
		same()
		must(t, other.Start())
		if code, err := other.Wait(t.Context()); err != nil || code != 1 || !strings.Contains(other.Log(), "another playlet runs with the same runtime") {
			t.Fatalf("it ended with code %d, %v: %s", code, err, other.Log())
		}
		settled(t, holder)
		same()
		must(t, holder.Kill9())
		must(t, other.Start())
	}
	settled(t, agents[0])
	same()
}
