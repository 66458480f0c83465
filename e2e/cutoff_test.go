//go:build e2e

package e2e

import (
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A container whose start was interrupted may leave a process that its runtime has given up, and that the runtime alone cannot
// remove. The agent ends the process, and nothing of the pod remains.
func TestWhatACutOffStartLeavesIsRemoved(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		_, err := s.Pull(t.Context(), s.HelloImage())
		must(t, err)
		const most = 180
		found, err := s.CutOffStarts(t.Context(), s.HelloImage(), most)
		must(t, err)
		if !found {
			t.Logf("none of %d starts that were cut off left anything that the runtime could not remove", most)
		}
		a := s.Agent(t)
		nothing(t, s)
		must(t, s.SweepByForce()) // of containers that the runtime has forgotten, so that no agent can know them
		cleared(t, s, a)
	})
}
