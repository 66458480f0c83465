package runtime

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

func TestEventsAreHints(t *testing.T) {
	f := newFake()
	f.pod("u", "a0r")
	f.pod("v", "b0r")
	s := newStream()
	e := NewEvents(s, slog.New(slog.DiscardHandler))
	defer e.Close()
	r := settledRig(t, f, func(o *Options) { o.Events = e })
	happens := func(b Batch) { // ends the one pending wait with this batch
		t.Helper()
		if len(r.Work) != 1 || r.Work[0].Name != "GetContainerEvents" {
			t.Fatalf("work: %+v", r.Work)
		}
		r.Work = nil
		r.Send(messages.Runtime, eventsReceived{b})
		r.work()
	}
	happens(Batch{Opened: true})
	r.expect("told after the subscription", r.sent(), "ready")
	if got := r.state.Load().Hints; got != ByEvents {
		t.Error(got)
	}
	f.took()
	r.Advance(time.Second)
	r.work()
	r.expect("one more audit, soon", f.took(), "sandboxes containers")
	r.sent()
	r.Advance(30 * time.Second)
	r.work()
	r.expect("and then seldom", f.took(), "")

	f.set("u/s0/a0", exitedState, 2)
	happens(Batch{Pods: []string{"u"}})
	r.expect("told", r.sent(), "u[10.0.0.1,a0=exited2]")
	r.expect("calls", f.took(), "sandboxes:u containers:u container:u/s0/a0")

	f.drop("v")
	happens(Batch{Pods: []string{"v"}})
	r.expect("told of what is gone", r.sent(), "v[]")

	happens(Batch{Ended: errors.New("broken")})
	if got := r.state.Load().Hints; got != ByPolling {
		t.Error(got)
	}
	r.expect("told when it broke", r.sent(), "ready audit(u)")
	r.Advance(subscribeRetry.First)
	happens(Batch{Opened: true})
	if got := r.state.Load().Hints; got != ByEvents {
		t.Error(got)
	}
}

func TestRuntimeWithoutEventsIsPolled(t *testing.T) {
	f := newFake()
	e := NewEvents(newStream(), slog.New(slog.DiscardHandler))
	defer e.Close()
	r := settledRig(t, f, func(o *Options) { o.Events = e })
	r.Work = nil
	r.Send(messages.Runtime, eventsReceived{Batch{Opened: true, Ended: &cri.PermanentError{CallError: &cri.CallError{
		Call: "GetContainerEvents", Answered: true, Err: status.Error(codes.Unimplemented, "unknown method"),
	}}}})
	r.work()
	f.took()
	for range 3 {
		r.Advance(time.Second)
		r.work()
	}
	r.expect("calls", f.took(), "sandboxes containers sandboxes containers sandboxes containers")
	if len(r.Work) != 0 {
		t.Errorf("asked for events again: %+v", r.Work)
	}
}
