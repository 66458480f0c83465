package supervisors

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/messages"
)

// Metrics are by kind: two dynamic children are one, and a dead letter counts for the kind of its address.
func TestMetricsAreByKind(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	began, end, handled := make(chan struct{}), make(chan struct{}), make(chan struct{}, 9)
	leaf := func(string) Actor {
		return &probe{func(ctx Context, msg any) {
			switch msg.(type) {
			case boom:
				panic("boom")
			case ping:
				ctx.Unhandled(msg)
				handled <- struct{}{}
			case pong:
				close(began)
				<-end
				handled <- struct{}{}
			}
		}}
	}
	root := &probe{func(ctx Context, msg any) {
		switch m := msg.(type) {
		case messages.Started:
			ctx.Spawn("a")
			ctx.Spawn("b")
		case messages.ChildStarted:
			if m.Name == "b" || m.Again {
				handled <- struct{}{}
			}
		}
	}}
	s, err := Start(Options{Tree: &Row{Kind: "node", Strategy: lenient, Children: []Row{{Kind: "leaf", Dynamic: true, Strategy: lenient}}},
		Clock: clock, Constructors: map[Kind]Constructor{"node": func(string) Actor { return root }, "leaf": leaf}})
	if err != nil {
		t.Fatal(err)
	}
	<-handled
	s.Tell("a", boom{})
	<-handled
	s.Tell("b", ping{})
	<-handled
	s.Tell("gone", ping{})
	s.Tell("a", pong{})
	s.Tell("a", ping{})
	s.Tell("a", ping{})
	<-began
	for idle := false; !idle; time.Sleep(time.Millisecond) { // until the root is idle
		root, _ := s.VitalsOf(messages.Node)
		idle = root.Handling == nil && root.Waiting == 0
	}
	clock.Step(3 * time.Second)
	want := `
# HELP playlet_actor_restarts_total Actor restarts, for any reason.
# TYPE playlet_actor_restarts_total counter
playlet_actor_restarts_total{kind="leaf"} 1
playlet_actor_restarts_total{kind="node"} 0
# HELP playlet_dead_letters_total Messages sent to actors that do not exist or have stopped.
# TYPE playlet_dead_letters_total counter
playlet_dead_letters_total{kind="leaf"} 1
playlet_dead_letters_total{kind="node"} 0
# HELP playlet_mailbox_messages Messages waiting in mailboxes, excluding those being handled.
# TYPE playlet_mailbox_messages gauge
playlet_mailbox_messages{kind="leaf"} 2
playlet_mailbox_messages{kind="node"} 0
# HELP playlet_mailbox_oldest_message_age_seconds Age of the oldest unfinished message of any actor of the kind.
# TYPE playlet_mailbox_oldest_message_age_seconds gauge
playlet_mailbox_oldest_message_age_seconds{kind="leaf"} 3
playlet_mailbox_oldest_message_age_seconds{kind="node"} 0
# HELP playlet_unhandled_messages_total Messages that an actor does not handle in its current state.
# TYPE playlet_unhandled_messages_total counter
playlet_unhandled_messages_total{kind="leaf"} 1
playlet_unhandled_messages_total{kind="node"} 0
`
	if err := testutil.CollectAndCompare(s, strings.NewReader(want), "playlet_actor_restarts_total", "playlet_dead_letters_total",
		"playlet_mailbox_messages", "playlet_mailbox_oldest_message_age_seconds", "playlet_unhandled_messages_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(s, "playlet_message_handling_seconds"); n != 2 {
		t.Errorf("%d histograms", n)
	}
	close(end)
	for range 3 {
		<-handled
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
