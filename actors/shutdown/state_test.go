package shutdown

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// The file has the kubelet's format. It shows when pods were last ended, and whether that was completed. A shutdown that
// continues after a restart keeps its start time.
func TestTheTimesOfAShutdownAreKept(t *testing.T) {
	path := StatePath(t.TempDir())
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	var none time.Time
	for _, c := range []struct {
		what         string
		began, ended time.Time
		want         string
	}{
		{"begun", at(0), none, `{"startTime":"2026-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}`},
		{"begun again by another life", at(1), none, `{"startTime":"2026-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}`},
		{"done", none, at(2), `{"startTime":"2026-01-01T00:00:00Z","endTime":"2026-01-01T00:02:00Z"}`},
		{"the next", at(3), none, `{"startTime":"2026-01-01T00:03:00Z","endTime":"0001-01-01T00:00:00Z"}`},
		{"one after a shutdown that was cut off", at(9), none, `{"startTime":"2026-01-01T00:09:00Z","endTime":"0001-01-01T00:00:00Z"}`},
	} {
		must(t, keep(path, c.began, c.ended, 2*time.Minute))
		if text, err := os.ReadFile(path); err != nil || string(text) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.what, text, err, c.want)
		}
	}
	if start, end := testutil.ToFloat64(metrics.ShutdownStart), testutil.ToFloat64(metrics.ShutdownEnd); start != float64(at(9).Unix()) ||
		end != 0 {
		t.Errorf("the metrics say %v and %v", start, end)
	}
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if err := keep(path, at(20), none, time.Minute); err == nil {
		t.Error("a file that cannot be read is passed over in silence")
	}
	must(t, os.Truncate(path, maxState+1))
	err := keep(path, at(20), none, time.Minute)
	if want := path + " is not read: it is larger than 4096 bytes"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a file that is too large: %v", err)
	}
	if got, err := read(path); err != nil || !got.Start.Equal(at(20)) {
		t.Errorf("it is written anew: %+v, %v", got, err)
	}
}

func TestWhatLogindLacksIsInHealth(t *testing.T) {
	r, state := begin(t), &State{}
	if got := state.Problems(); len(got) > 0 {
		t.Errorf("before anything is known: %q", got)
	}
	r.login.err = os.ErrNotExist
	r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{Groups: twoGroups, Inhibitor: r.login, Board: r.board, State: state})(""))
	r.works(await)
	if got := state.Problems(); len(got) != 1 || got[0] != "a shutdown of the machine does not wait for pods: file does not exist" {
		t.Errorf("%q", got)
	}
	r.login.err = nil
	r.Advance(retryAfter)
	r.works(await)
	if got := state.Problems(); len(got) > 0 {
		t.Errorf("when it is back: %q", got)
	}
}

// A delay that is too short is in health, and a shutdown is still awaited.
func TestShortDelayIsInHealth(t *testing.T) {
	r, state := begin(t), &State{}
	r.login.err = ShortDelay{errors.New("30s at most")}
	r.Kit = supervisortest.New(t, messages.Shutdown, New(Options{Groups: twoGroups, Inhibitor: r.login, Board: r.board, State: state})(""))
	r.works(await)
	if got := state.Problems(); len(got) != 1 || got[0] != "a shutdown of the machine may not wait long enough for pods: 30s at most" {
		t.Errorf("%q", got)
	}
	r.login.err = nil
	r.works(await) // no pause
	if got := state.Problems(); len(got) > 0 {
		t.Errorf("when it is long enough: %q", got)
	}
}
