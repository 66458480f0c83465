package exits

import (
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

func TestStrategy_Judge(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	of := func(code int32) messages.Exit {
		return messages.Exit{Code: code, At: now.Add(-4 * time.Second), Run: 3}
	}
	waits := backoff.Restarts{Policy: backoff.Policy{First: 10 * time.Second, Max: time.Minute}, Step: 2, Last: now.Add(-time.Minute)}
	again := func(codes ...int32) Rule { return Rule{Codes: codes, Then: messages.ExitRestarts} }
	for _, c := range []struct {
		name  string
		s     Strategy
		code  int32
		want  messages.ExitVerdict
		after time.Duration
	}{
		{"zero value", Strategy{}, 1, messages.ExitStops, 0},
		{"temporary", Strategy{Restart: Temporary, Backoff: waits}, 1, messages.ExitStops, 0},
		{"temporary, vital, failed", Strategy{Restart: Temporary, Escalate: true}, 1, messages.ExitEscalates, 0},
		{"temporary, vital, succeeded", Strategy{Restart: Temporary, Escalate: true}, 0, messages.ExitStops, 0},
		{"transient, failed", Strategy{Restart: Transient, Backoff: waits}, 1, messages.ExitRestarts, 16 * time.Second},
		{"transient, vital, failed", Strategy{Restart: Transient, Escalate: true}, 1, messages.ExitRestarts, 0},
		{"transient, succeeded", Strategy{Restart: Transient, Backoff: waits}, 0, messages.ExitStops, 0},
		{"permanent", Strategy{Restart: Permanent}, 0, messages.ExitRestarts, 0},
		{"permanent, failed", Strategy{Restart: Permanent, Backoff: waits}, 1, messages.ExitRestarts, 16 * time.Second},
		{"exit of an earlier run", Strategy{Restart: Permanent, Backoff: waits, Run: 4}, 1, messages.ExitRestarts, 0},
		{"rule", Strategy{Restart: Temporary, Rules: []Rule{again(42)}}, 42, messages.ExitRestarts, 0},
		{"rule for another code", Strategy{Restart: Temporary, Escalate: true, Rules: []Rule{again(42)}}, 1,
			messages.ExitEscalates, 0},
		{"rule for all other codes", Strategy{Rules: []Rule{{Codes: []int32{42}, Not: true, Then: messages.ExitRestarts}}}, 1,
			messages.ExitRestarts, 0},
		{"rule that stops", Strategy{Restart: Permanent, Rules: []Rule{{Codes: []int32{0}, Then: messages.ExitStops}}}, 0,
			messages.ExitStops, 0},
		{"first rule leaves it to the restart type", Strategy{Rules: []Rule{{Codes: []int32{42}}, again(42)}}, 42,
			messages.ExitStops, 0},
	} {
		if got, after := c.s.Judge(now, of(c.code)); got != c.want || after != c.after {
			t.Errorf("%s: code %d: got %s after %s, want %s after %s", c.name, c.code, got, after, c.want, c.after)
		}
	}
}
