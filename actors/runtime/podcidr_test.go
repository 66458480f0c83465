package runtime

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func observed(cidrs ...string) messages.NodeObserved {
	return messages.NodeObserved{Node: &v1.Node{Spec: v1.NodeSpec{PodCIDRs: cidrs}}}
}

// The Node's ranges are sent once, retried if the runtime rejects them, and sent to each newly connected runtime.
func TestTheRuntimeGetsTheRangeOfAddresses(t *testing.T) {
	f := newFake()
	f.fail("", away())
	r := start(t, f, func(o *Options) { o.PodCIDR = "10.9.0.0/24" })
	r.work()
	r.expect("while the runtime is away", f.took(), "")
	f.fail("", nil)
	update := func() string {
		r.work()
		out := ""
		for call := range strings.FieldsSeq(f.took()) {
			if cidrs, ok := strings.CutPrefix(call, "UpdateRuntimeConfig:"); ok {
				out += cidrs + " "
			}
		}
		return out
	}
	r.Advance(checkRetry.Max)
	r.expect("what the configuration has", update(), "10.9.0.0/24 ")
	r.Send(messages.Registration, messages.NodeObserved{})
	r.Send(messages.Registration, observed())
	r.expect("of a Node that has none", update(), "")
	r.Send(messages.Registration, observed("10.1.0.0/24", "fd00::/64"))
	r.expect("what the Node has", update(), "10.1.0.0/24,fd00::/64 ")
	r.Send(messages.Registration, observed("10.1.0.0/24", "fd00::/64"))
	r.expect("the same", update(), "")

	f.fail("UpdateRuntimeConfig", status.Error(codes.Internal, "no template"))
	r.Send(messages.Registration, observed("10.2.0.0/24"))
	r.expect("what fails", update(), "10.2.0.0/24 ")
	r.expect("at once", update(), "")
	r.expect("health", r.state.Load().Refused,
		"the container runtime does not take podCIDR 10.2.0.0/24; will retry: rpc error: code = Internal desc = no template")
	f.fail("UpdateRuntimeConfig", nil)
	r.Advance(cidrsRest)
	r.expect("again", update(), "10.2.0.0/24 ")
	r.expect("health later", r.state.Load().Refused, "")
	r.Advance(time.Minute)
	r.expect("later", update(), "")

	f.fail("", away())
	r.Advance(5 * time.Second)
	r.work()
	f.fail("", nil)
	r.Advance(checkRetry.Max)
	r.expect("a runtime that was away", update(), "10.2.0.0/24 ")

	f.fail("UpdateRuntimeConfig", &cri.CallError{Answered: true, Err: status.Error(codes.Internal, "no")})
	r.Send(messages.Registration, observed("10.2.1.0/24"))
	r.expect("what is not taken", update(), "10.2.1.0/24 ")
	r.Send(messages.Registration, observed("10.2.0.0/24"))
	r.expect("what was taken before", update(), "")
	r.expect("health then", r.state.Load().Refused, "")

	f.fail("UpdateRuntimeConfig", &cri.CallError{Answered: true, Err: status.Error(codes.Unimplemented, "what")})
	r.Send(messages.Registration, observed("10.3.0.0/24"))
	r.expect("an old runtime", update(), "10.3.0.0/24 ")
	r.Advance(time.Minute)
	r.expect("an old runtime later", update(), "")
}

// A restarted actor keeps the Node's range: the configured one would change the network for a moment.
func TestTheRangeOfTheNodeOutlivesTheActor(t *testing.T) {
	f := newFake()
	opts := Options{CRI: f, Operations: cri.NewOperations(), State: &State{}, PodCIDR: "10.9.0.0/24"}
	build := New(opts)
	r := &rig{t: t, f: f, state: opts.State}
	for i, want := range []string{"10.9.0.0/24", "10.1.0.0/24", "10.1.0.0/24"} {
		r.Kit = supervisortest.New(t, messages.Runtime, build("runtime"))
		r.work()
		calls := f.took()
		if !strings.Contains(calls, "UpdateRuntimeConfig:"+want) || strings.Count(calls, "UpdateRuntimeConfig") != 1 {
			t.Errorf("actor %d told %s, want %s", i, calls, want)
		}
		r.Send(messages.Registration, observed("10.1.0.0/24"))
		r.work()
		f.took()
	}
}

// A late answer of a previous runtime does not count for the next.
func TestARangeThatAnotherRuntimeTook(t *testing.T) {
	f := newFake()
	r := start(t, f, nil)
	r.work()
	f.took()
	r.Send(messages.Registration, observed("10.1.0.0/24"))
	old := r.take("UpdateRuntimeConfig")
	f.fail("", away())
	r.Advance(5 * time.Second)
	r.work()
	f.fail("", nil)
	r.Advance(checkRetry.Max)
	r.work()
	f.took()
	r.RunOne(old)
	f.took()
	r.work()
	if calls := f.took(); !strings.Contains(calls, "UpdateRuntimeConfig:10.1.0.0/24") {
		t.Errorf("the runtime that is there now was asked %s", calls)
	}
}
