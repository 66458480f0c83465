package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// A report about the node is new once. New pods wait for the API server's Node, for a bounded time.
func TestObserved(t *testing.T) {
	var o nodeState
	now := time.Unix(1000, 0)
	if !o.mustWait(now) || !o.mustWait(now.Add(nodeWait-1)) || o.mustWait(now.Add(nodeWait)) {
		t.Error("pods do not wait, or for ever")
	}
	for i, word := range []*v1.Node{nil, nil, {Spec: v1.NodeSpec{PodCIDR: "x"}}, {Spec: v1.NodeSpec{PodCIDR: "x"}}} {
		if news := o.observe(messages.NodeObserved{Node: word}); news != (i%2 == 0) || o.mustWait(now) {
			t.Errorf("word %d: news %t", i, news)
		}
	}
	for i, under := range []bool{false, true, true, false} {
		m := messages.NodePressureObserved{Pressures: []messages.Pressure{{Type: v1.NodeDiskPressure, Under: under}}}
		if news := o.measured(m); news != (i%2 == 1) || len(o.under) > 0 != under {
			t.Errorf("measurement %d: news %t, under %v", i, news, o.under)
		}
	}
	here := small()
	o.measured(messages.NodePressureObserved{Pressures: []messages.Pressure{{Type: v1.NodeDiskPressure, Under: true}}})
	if n := o.admits(&here, false); n.Object.Spec.PodCIDR != "x" || len(n.Under) != 1 || !n.UnboundRequests {
		t.Errorf("%+v", n)
	}
}
