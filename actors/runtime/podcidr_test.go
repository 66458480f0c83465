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
)

func observed(cidrs ...string) messages.NodeObserved {
	return messages.NodeObserved{Node: &v1.Node{Spec: v1.NodeSpec{PodCIDRs: cidrs}}}
}

// What the Node has is told once, again where the runtime did not take it, and to each runtime that is connected anew.
func TestTheRuntimeIsToldTheRangeOfAddresses(t *testing.T) {
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
	r.Advance(checkCap)
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
	f.fail("UpdateRuntimeConfig", nil)
	r.Advance(cidrsRest)
	r.expect("again", update(), "10.2.0.0/24 ")
	r.Advance(time.Minute)
	r.expect("later", update(), "")

	f.fail("", away())
	r.Advance(5 * time.Second)
	r.work()
	f.fail("", nil)
	r.Advance(checkCap)
	r.expect("a runtime that was away", update(), "10.2.0.0/24 ")

	f.fail("UpdateRuntimeConfig", &cri.CallError{Answered: true, Err: status.Error(codes.Unimplemented, "what")})
	r.Send(messages.Registration, observed("10.3.0.0/24"))
	r.expect("an old runtime", update(), "10.3.0.0/24 ")
	r.Advance(time.Minute)
	r.expect("an old runtime later", update(), "")
}

// What a runtime answers that is gone meanwhile is not taken for the word of the next.
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
	r.Advance(checkCap)
	r.work()
	f.took()
	r.RunOne(old)
	f.took()
	r.work()
	if calls := f.took(); !strings.Contains(calls, "UpdateRuntimeConfig:10.1.0.0/24") {
		t.Errorf("the runtime that is there now was asked %s", calls)
	}
}
