package exits

import (
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

func TestStrategy_Verdict(t *testing.T) {
	again := func(codes ...int32) Rule { return Rule{Codes: codes, Then: messages.ExitRestarts} }
	for _, c := range []struct {
		name string
		s    Strategy
		code int32
		want messages.ExitVerdict
	}{
		{"zero value", Strategy{}, 1, messages.ExitStops},
		{"temporary", Strategy{Restart: Temporary}, 1, messages.ExitStops},
		{"temporary, vital, failed", Strategy{Restart: Temporary, Escalate: true}, 1, messages.ExitEscalates},
		{"temporary, vital, succeeded", Strategy{Restart: Temporary, Escalate: true}, 0, messages.ExitStops},
		{"transient, failed", Strategy{Restart: Transient}, 1, messages.ExitRestarts},
		{"transient, vital, failed", Strategy{Restart: Transient, Escalate: true}, 1, messages.ExitRestarts},
		{"transient, succeeded", Strategy{Restart: Transient}, 0, messages.ExitStops},
		{"permanent", Strategy{Restart: Permanent}, 0, messages.ExitRestarts},
		{"permanent, failed", Strategy{Restart: Permanent}, 1, messages.ExitRestarts},
		{"rule", Strategy{Restart: Temporary, Rules: []Rule{again(42)}}, 42, messages.ExitRestarts},
		{"rule for another code", Strategy{Restart: Temporary, Escalate: true, Rules: []Rule{again(42)}}, 1,
			messages.ExitEscalates},
		{"rule for all other codes", Strategy{Rules: []Rule{{Codes: []int32{42}, Not: true, Then: messages.ExitRestarts}}}, 1,
			messages.ExitRestarts},
		{"rule that stops", Strategy{Restart: Permanent, Rules: []Rule{{Codes: []int32{0}, Then: messages.ExitStops}}}, 0,
			messages.ExitStops},
		{"first rule leaves it to the restart type", Strategy{Rules: []Rule{{Codes: []int32{42}}, again(42)}}, 42,
			messages.ExitStops},
	} {
		if got := c.s.Verdict(messages.Exit{Code: c.code, Run: 3}); got != c.want {
			t.Errorf("%s: code %d: got %s, want %s", c.name, c.code, got, c.want)
		}
	}
}
