package supervisors

import (
	"context"
	"slices"
	"testing"
	"time"
)

type (
	steadily        struct{} // a timer that comes at a steady rate
	followedMessage struct{ n int }
)

func (steadily) Routine() {}

// Timers of the node, consequences of routine messages, and routine work each begin a flow. Otherwise one flow would go on as
// long as the agent, or begin with an entry that is not recorded.
func TestTimersOfTheNodeBeginFlows(t *testing.T) {
	done := make(chan struct{})
	s, _ := startWorker(t, nil, func(ctx Context, msg any) {
		switch m := msg.(type) {
		case ping:
			ctx.After(time.Millisecond, followedMessage{1})
			ctx.After(time.Millisecond, steadily{})
		case steadily:
			ctx.Tell("worker", followedMessage{2})
			ctx.Do(Work{Name: "steady", Timeout: time.Minute, Run: func(context.Context) any { return followedMessage{3} }})
			ctx.Do(Work{Name: "awaits", Timeout: time.Minute, Routine: true, Run: func(context.Context) any { return followedMessage{4} }})
		case followedMessage:
			if m.n == 4 {
				ctx.Do(Work{Name: "awaits", Timeout: time.Minute, Routine: true, Run: func(context.Context) any {
					close(done)
					return followedMessage{5}
				}})
			}
		}
	})
	awaitWorker(t, s, there)
	s.Tell("worker", ping{})
	<-done
	var story []Entry
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		story = s.Recorder().Select(Query{})
		results := 0
		for _, e := range story {
			if e.Message == "followedMessage" {
				results++
			}
		}
		if results == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(story)
		}
	}
	flows := map[uint64]bool{}
	for _, e := range story {
		first := e.Flow.ID == e.ID
		flows[e.Flow.ID] = true
		if e.Kind == OfTimer && !first || e.Message == "awaits" && !first {
			t.Errorf("%v is of flow %d", e, e.Flow.ID)
		}
		if !first && !slices.ContainsFunc(story, func(c Entry) bool { return c.ID == e.Cause && c.Flow.ID == e.Flow.ID }) {
			t.Errorf("%v is of flow %d, and its cause is not", e, e.Flow.ID)
		}
	}
	// The first messages of two actors, the ping, its timer, and after the routine message: a message, and work three times.
	if len(flows) != 8 {
		t.Errorf("%d flows: %v", len(flows), story)
	}
}
