package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// A pod of which nothing is known yet waits for the runtime while that is away, and for nothing else that it does not say.
func TestWhatAPodAwaitsWhileTheRuntimeIsAway(t *testing.T) {
	away := messages.RuntimeStateChanged{Reason: messages.Reason{Code: messages.ReasonRuntimeUnavailable, Message: "refused"}}
	known := &v1.PodStatus{}
	for name, c := range map[string]struct {
		runtime messages.RuntimeStateChanged
		e       entry
		want    bool
	}{
		"new":        {away, entry{}, true},
		"read anew":  {away, entry{life: life{status: known, phase: "reading"}}, true},
		"runs":       {away, entry{life: life{status: known, phase: "running"}}, false},
		"says why":   {away, entry{life: life{waiting: &messages.Reason{Code: "x"}}}, false},
		"runtime up": {messages.RuntimeStateChanged{Ready: true}, entry{}, false},
	} {
		a := &actor{node: observed{runtime: c.runtime}}
		why := a.awaitsRuntime(&c.e)
		if (why != nil) != c.want || why != nil && (*why != c.runtime.Reason || why == &a.node.runtime.Reason) {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// A burst of changes makes one snapshot, the later the more pods there are.
func TestPublishing(t *testing.T) {
	p := publishing{pods: 100}
	first, plan := p.change()
	if _, again := p.change(); !plan || again || first != publishEvery+100*publishEach {
		t.Errorf("planned %t after %v, and again %t", plan, first, again)
	}
	p.due = false
	if _, plan := p.change(); !plan {
		t.Error("the next one is not planned")
	}
}
