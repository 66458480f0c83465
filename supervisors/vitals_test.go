package supervisors

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// awaitVitals waits until an actor's vitals satisfy ok.
func awaitVitals(t *testing.T, s *System, a messages.Address, ok func(Vitals) bool) Vitals {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		v, _ := s.VitalsOf(a)
		if ok(v) {
			return v
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q: %+v", a, v)
		}
	}
}

func TestVitals_OfHangingAndQuarantinedActors(t *testing.T) {
	in, release := newInbox(), make(chan struct{})
	s := startFamily(t, family(Quarantine, 1), in, nil, func(ctx Context, msg any) bool {
		if _, hang := msg.(ping); hang && ctx.Self() == "keeper/a" {
			<-release
		}
		return false
	})
	in.await(t, 1, "starts of a", is[messages.Started]("keeper/a"))
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	before := time.Now()
	s.Tell("keeper/a", ping{})
	s.Tell("keeper/a", boom{})
	v := awaitVitals(t, s, "keeper/a", func(v Vitals) bool {
		return v.Waiting == 1 && v.Handling != nil && v.Handling.Message == "ping"
	})
	if v.State != Running || v.Kind != "kid" || v.Handling.From != messages.Node || v.Handling.Sent.Before(before) ||
		v.Handling.Began.Before(before.Truncate(time.Microsecond)) || v.Since.After(before) || v.Failure != nil || v.MaxWaiting < 2 {
		t.Errorf("%+v", v)
	}
	if busy := v.Busy(v.Handling.Began.Add(2 * time.Second)); !strings.HasPrefix(busy, "it is busy with ping of node since ") ||
		!strings.HasSuffix(busy, " (2s); 1 more wait") {
		t.Errorf("%q", busy)
	}
	close(release)
	v = awaitVitals(t, s, "keeper/a", func(v Vitals) bool { return v.Restarts == 1 && v.State == Running })
	if v.Failure == nil || v.Failure.Reason != "boom" || v.Failure.At.Before(before) || v.Since.Before(v.Failure.At) {
		t.Errorf("%+v", v)
	}
	in.await(t, 2, "starts of a", is[messages.Started]("keeper/a"))
	s.Tell("keeper/a", boom{})
	v = awaitVitals(t, s, "keeper/a", func(v Vitals) bool { return v.State == Quarantined })
	if v.Until.Sub(v.Failure.At) < QuarantinePeriod-time.Minute || v.Handling != nil || v.Waiting != 0 ||
		!strings.Contains(v.Busy(time.Now()), "quarantine until") {
		t.Errorf("%+v", v)
	}
	var paths []messages.Address
	for _, v := range s.Vitals() {
		paths = append(paths, v.Path)
	}
	if want := []messages.Address{"", "keeper", "keeper/a", "keeper/b", "service"}; !slices.Equal(paths, want) {
		t.Errorf("%q", paths)
	}
}

// An actor that was stopped for good, or that ended with its parent, is no longer listed.
func TestVitalsOfWhoIsGone(t *testing.T) {
	in := newInbox()
	type stop struct{}
	s := startFamily(t, family(Escalate, 5), in, nil, func(ctx Context, msg any) bool {
		if _, ok := msg.(stop); ok {
			ctx.Stop("a")
		}
		return false
	})
	in.await(t, 1, "starts of b", is[messages.Started]("keeper/b"))
	s.Tell("keeper", stop{})
	awaitVitals(t, s, "keeper/a", func(v Vitals) bool { return v.State == "" })
	s.Tell("keeper", boom{})
	in.await(t, 2, "starts of b", is[messages.Started]("keeper/b"))
	if v, _ := s.VitalsOf("keeper/b"); v.State != Running || v.Restarts != 0 {
		t.Errorf("a child of a new parent: %+v", v)
	}
}
