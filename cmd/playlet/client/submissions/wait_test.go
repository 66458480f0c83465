package submissions

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An agent that has only started does not know yet what runs: a pod that it does not name may be there.
func TestAPodIsNotGoneBeforeTheAgentKnowsWhatRuns(t *testing.T) {
	c := &submitCommand{}
	for name, change := range map[string]*api.Change{
		"it knows nothing": {Full: true, Node: &api.Node{}},
		"a source is not heard": {Full: true, Version: 1,
			Node: &api.Node{Audited: true, Unheard: []messages.Address{messages.Submit}}},
		"the runtime has not been read": {Full: true, Version: 1, Node: &api.Node{}},
		"it tells a change":             {Version: 2, Node: &api.Node{Audited: true}},
		"gone":                          {Full: true, Version: 1, Node: &api.Node{Audited: true}},
	} {
		left := map[string]string{"u": "default/web"}
		if c.takeGone(change, left); (len(left) == 0) != (name == "gone") {
			t.Errorf("%s: %v", name, left)
		}
	}
}
