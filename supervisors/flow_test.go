package supervisors

import (
	"context"
	"slices"
	"testing"
	"time"
)

type (
	steadily struct{} // a timer that comes at a steady rate
	followed struct{ n int }
)

func (steadily) Routine() {}

// A timer of the node begins a flow, and so does what follows from a message at a steady rate, which is not recorded, and routine
// work: no flow goes on for as long as the agent runs, and none begins with an entry that nobody has.
func TestTimersOfTheNodeBeginFlows(t *testing.T) {
	done := make(chan struct{})
	s, _ := startWorker(t, nil, func(ctx Context, msg any) {
		switch m := msg.(type) {
		case ping:
			ctx.After(time.Millisecond, followed{1})
			ctx.After(time.Millisecond, steadily{})
		case steadily:
			ctx.Tell("worker", followed{2})
			ctx.Do(Work{Name: "steady", Timeout: time.Minute, Run: func(context.Context) any { return followed{3} }})
			ctx.Do(Work{Name: "awaits", Timeout: time.Minute, Routine: true, Run: func(context.Context) any { return followed{4} }})
		case followed:
			if m.n == 4 {
				ctx.Do(Work{Name: "awaits", Timeout: time.Minute, Routine: true, Run: func(context.Context) any {
					close(done)
					return followed{5}
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
			if e.Message == "followed" {
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
	// Two actors' first messages, the ping, its timer, and what follows from the steady one: a message, and work three times.
	if len(flows) != 8 {
		t.Errorf("%d flows: %v", len(flows), story)
	}
}
