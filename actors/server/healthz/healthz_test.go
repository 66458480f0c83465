package healthz

import (
	"context"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

// countingPods counts the questions to pods.
type countingPods struct{ asked int }

func (c *countingPods) Ask(context.Context, messages.Address, any) (any, error) {
	c.asked++
	return messages.Inspection{}, nil
}

func (*countingPods) Quarantined() map[messages.Address]messages.ChildQuarantined { return nil }

// Any number of probes on the loopback is no work for pods.
func TestProbesAreNoWorkForPods(t *testing.T) {
	tree := &countingPods{}
	h := New(Config{
		Context: t.Context(), Board: board.New(), Tree: func() Tree { return tree },
		Runtime: func() api.Runtime { return api.Runtime{} },
	})
	h.asked = time.Now().Add(time.Hour) // fresh regardless of the machine's speed
	for range 5 {
		h.answers(t.Context())
	}
	if tree.asked != 0 {
		t.Errorf("pods was asked %d times for an answer that was there", tree.asked)
	}
	h.asked = time.Now().Add(-podsFresh)
	h.answers(t.Context())
	if tree.asked != 1 {
		t.Errorf("pods was asked %d times for an answer that was old", tree.asked)
	}
}
