//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// TERM ends the agent with 0 and touches no container; who starts it again finds all as it was.
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

// Two agents on one root directory would undo each other's work: the second says so and ends; the first does not notice.
func TestASecondAgentOnTheSameRootDirectoryRefuses(t *testing.T) {
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
