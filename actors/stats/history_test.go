package stats

import (
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/history"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// advance moves both clocks of the rig by one sample, and runs the work that becomes due.
func (r *rig) advance() {
	r.clock.SetTime(r.clock.Now().Add(history.Every))
	r.actor.Clock.SetTime(r.clock.Now().Add(-history.Every))
	r.actor.Advance(history.Every)
	r.actor.RunWork()
}

// samples returns the number of recorded samples of the pod.
func (r *rig) samples(uid string) int {
	for _, s := range r.History(uid) {
		if s.Name == "" {
			return len(s.Samples)
		}
	}
	return 0
}

func TestActor_RecordsFiguresWhileTheyAreRead(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	r.cri.stats = append(r.cri.stats, criStats(containerID1, 5, 4096))
	r.actor.RunWork()
	if n := len(r.actor.Pending()); n != 0 {
		t.Fatalf("got %d timers before the first request, want none", n)
	}
	r.RecordFigures()
	r.RecordFigures()
	for range 3 {
		r.advance()
	}
	if n := r.samples("uid-web"); n != 4 {
		t.Errorf("got %d samples after four intervals, want 4", n)
	}
	if s := r.History("uid-web"); len(s) != 2 || s[1].Name != "c1" || *s[1].Samples[0].WorkingSet != 4096 {
		t.Errorf("got the series %+v", s)
	}
	// A restarted actor goes on without a request.
	r.actor = supervisortest.New(t, messages.Stats, New(r.Collector)(""))
	r.actor.RunWork()
	if n := r.samples("uid-web"); n != 5 {
		t.Errorf("got %d samples after a restart, want 5", n)
	}
	for range history.Idle/history.Every + 1 {
		r.advance()
	}
	if n := len(r.actor.Pending()); n != 0 || r.samples("uid-web") != 0 {
		t.Errorf("got %d timers and %d samples an hour after the last request, want none", n, r.samples("uid-web"))
	}
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	r.RecordFigures()
	if n := r.samples("uid-web"); n != 1 {
		t.Errorf("got %d samples after another request, want 1", n)
	}
}
