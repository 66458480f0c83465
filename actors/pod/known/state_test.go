package known

import (
	"slices"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/messages"
)

func TestLearnGoesForwardOnly(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	running := messages.ContainerFact{ID: "a", Attempt: 1, State: messages.ContainerRunning, CreatedAt: at(10)}
	exited := messages.ContainerFact{ID: "a", Attempt: 1, State: messages.ContainerExited, CreatedAt: at(10), ExitCode: 3}
	older := messages.ContainerFact{ID: "z", Attempt: 0, State: messages.ContainerExited, CreatedAt: at(5)}
	twin := messages.ContainerFact{ID: "b", Attempt: 1, State: messages.ContainerRunning, CreatedAt: at(9)}
	for _, c := range []struct {
		name string
		sent []messages.ContainerFact
		want messages.ContainerFact
	}{
		{"an end is final", []messages.ContainerFact{running, exited, running}, exited},
		{"a later attempt stays newest", []messages.ContainerFact{running, older}, running},
		{"an earlier twin of the attempt is not taken", []messages.ContainerFact{running, twin}, running},
		{"an end is learnt", []messages.ContainerFact{older, running, exited}, exited},
	} {
		b := &Container{}
		for _, f := range c.sent {
			b.Learn(f, at(20))
		}
		if got := b.Newest(); got.ID != c.want.ID || got.State != c.want.State {
			t.Errorf("%s: %s %s", c.name, got.ID, got.State)
		}
	}
}

// A container that the kernel killed for lack of memory has that reason at its end, whichever report comes first. A later SIGKILL
// and one of another container do not count.
func TestOutOfMemoryKill_ExplainsEnd(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		id     string
		code   int32
		ended  time.Duration
		reason string
	}{
		"its end":           {"a", 137, time.Second, messages.ReasonOOMKilled},
		"its end, before":   {"a", 137, -time.Second, messages.ReasonOOMKilled},
		"another exit code": {"a", 1, time.Second, "Error"},
		"another container": {"b", 137, time.Second, "Error"},
		"a later kill":      {"a", 137, time.Hour, "Error"},
	} {
		end := messages.ContainerFact{ID: c.id, Name: "c", State: messages.ContainerExited, ExitCode: c.code, Reason: "Error",
			FinishedAt: at.Add(c.ended)}
		for _, killFirst := range []bool{true, false} {
			var h History
			if killFirst {
				h.OutOfMemory("a", at)
			}
			h.Learn(end, at)
			if !killFirst {
				h.OutOfMemory("a", at)
			}
			h.Learn(end, at) // read once more
			if got := h.Attempts[0].Reason; got != c.reason {
				t.Errorf("%s, kill first %t: the reason is %s, want %s", name, killFirst, got, c.reason)
			}
		}
	}
}

func TestReplacement_SkipsLaterAttempts(t *testing.T) {
	c := &Container{}
	c.Learn(messages.ContainerFact{ID: "b", Attempt: 1, State: messages.ContainerExited}, time.Time{})
	c.Replace = true
	c.Learn(messages.ContainerFact{ID: "a", Attempt: 0, State: messages.ContainerExited}, time.Time{})
	if !c.Replace {
		t.Error("an earlier one is learnt, and it is not replaced")
	}
	c.Learn(messages.ContainerFact{ID: "c", Attempt: 2, State: messages.ContainerExited}, time.Time{})
	if c.Replace {
		t.Error("a later one is learnt, and it is replaced")
	}
}

// A pod's addresses are reported in the order of the node's families, one of each, as with the kubelet.
func TestAddressesInTheOrderOfFamilies(t *testing.T) {
	for _, c := range []struct{ host, has, want []string }{
		{nil, []string{"10.0.0.1", "fd00::1", "10.0.0.2"}, []string{"10.0.0.1", "fd00::1", "10.0.0.2"}},
		{[]string{"192.0.2.1"}, []string{"fd00::1", "10.0.0.1", "10.0.0.2"}, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"2001:db8::1", "192.0.2.1"}, []string{"10.0.0.1", "fd00::1", "fd00::2"}, []string{"fd00::1", "10.0.0.1"}},
		{[]string{"2001:db8::1"}, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
	} {
		s := &State{Set: settings.Settings{HostIPs: func() []string { return c.host }}}
		if got := s.byFamily(c.has); !slices.Equal(got, c.want) {
			t.Errorf("%v on a node with %v: %v", c.has, c.host, got)
		}
	}
}
