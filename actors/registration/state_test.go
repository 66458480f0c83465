package registration

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func at(uid types.UID, version string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: uid, ResourceVersion: version}}
}

func TestAnOlderWordIsNoNews(t *testing.T) {
	for _, c := range []struct {
		a, b *v1.Node
		want bool
	}{{at("u", "9"), at("u", "10"), true}, {at("u", "10"), at("u", "9"), false}, {at("v", "9"), at("u", "10"), false},
		{nil, at("u", "1"), false}, {at("u", "1"), nil, false}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%v, %v: %v", c.a, c.b, got)
		}
	}
}

// An answer to a write outranks older observations of the watch.
func TestTheWatchLagsBehindAnAnswer(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	heard := uint64(0)
	saw := func(version string) Observation { heard++; return Observation{Heard: heard, Node: at("u", version)} }
	failed := saw("90")
	failed.Err = errors.New("away")
	for name, c := range map[string]struct {
		how  func(*nodeState)
		want string
	}{
		"the watch is behind": {func(b *nodeState) { b.observe(saw("90")) }, "100"},
		"it is ahead":         {func(b *nodeState) { b.observe(saw("110")) }, "110"},
		"before an error":     {func(b *nodeState) { b.observe(failed) }, "100"},
		"an answer goes back": {func(b *nodeState) { b.done(write{status: true, base: b.node}, at("u", "90"), noon) }, "90"},
		"an answer that was late": {func(b *nodeState) {
			d := write{base: b.node}
			b.observe(saw("120"))
			b.done(d, at("u", "110"), noon)
		}, "120"},
	} {
		b := nodeState{random: func() float64 { return 0.5 }, interval: time.Minute}
		b.observe(Observation{Heard: 1000, Node: at("u", "80")})
		b.done(write{status: true, base: b.node}, at("u", "100"), noon)
		c.how(&b)
		if b.node.ResourceVersion != c.want {
			t.Errorf("%s: %s is known", name, b.node.ResourceVersion)
		}
	}
}

// A watch that broke before the Node existed does not remove a Node that was created meanwhile.
func TestTheWatchHasNothingNewer(t *testing.T) {
	b := nodeState{random: func() float64 { return 0.5 }, interval: time.Minute}
	b.observe(Observation{Heard: 1})
	b.done(write{create: at("u", "")}, at("u", "100"), time.Time{})
	for _, err := range []error{errors.New("away"), nil} {
		if b.observe(Observation{Heard: 1, Err: err}) || b.node == nil {
			t.Errorf("after %v the Node is gone", err)
		}
	}
	if b.observe(Observation{Heard: 3}); b.node != nil {
		t.Error("a Node that came and went is still there")
	}
}
