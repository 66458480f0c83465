package pods

import (
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// The audit is requested when the checkpoints have been read, and again until it arrives. An audit that was not requested is
// ignored.
func TestPhases(t *testing.T) {
	a := New(Options{Sources: []messages.Address{messages.File}, Board: board.New(), Dir: t.TempDir()})("pods").(*actor)
	k := supervisortest.New(t, messages.Pods, a)
	at := func(want phase, asked int) {
		t.Helper()
		if n := len(sent[messages.GetAudit](k)); a.phase != want || n != asked {
			t.Fatalf("it is %s and has asked %d times, not %s and %d", a.phase, n, want, asked)
		}
	}
	audit(k, "early")
	k.Advance(2 * askEvery)
	at(reading, 0)
	k.RunWork()
	at(auditing, 1)
	k.Advance(askEvery)
	at(auditing, 1)
	audit(k)
	k.Advance(2 * askEvery)
	at(hearing, 0)
	audit(k)
	wants(k, messages.File)
	at(complete, 0)
	if len(k.Spawned) > 0 {
		t.Errorf("spawned %v", k.Spawned)
	}
	defer func() {
		if recover() == nil {
			t.Error("it goes back")
		}
	}()
	a.enterPhase(k, auditing)
}
