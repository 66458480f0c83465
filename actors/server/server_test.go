package server

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func startActor(t *testing.T, r *rig) *supervisortest.Kit {
	t.Helper()
	return supervisortest.New(t, messages.Server, New(Options{Listeners: r.listeners})("server"))
}

// next returns the delay of the actor's only timer.
func next(t *testing.T, k *supervisortest.Kit) time.Duration {
	t.Helper()
	if pending := k.Pending(); len(pending) != 1 {
		t.Fatalf("pending %v, want one timer", pending)
	}
	var d time.Duration
	for len(k.Work) == 0 {
		k.Advance(100 * time.Millisecond)
		if d += 100 * time.Millisecond; d > time.Hour {
			t.Fatal("the actor looks no more")
		}
	}
	return d
}

func TestTheActorOpensWhatIsNotOpen(t *testing.T) {
	r := newRig(t, nil)
	k := startActor(t, r)
	if len(k.Work) != 1 {
		t.Fatalf("work %v at the start", k.Work)
	}
	if _, err := r.client.Version(t.Context()); err == nil {
		t.Fatal("it listened before its work was done: I/O in the mailbox")
	}
	k.RunWork()
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := next(t, k); d != lookEvery {
		t.Errorf("it looks again after %s", d)
	}
	k.Send(messages.Server, look{}) // a late timer during the work in progress
	if len(k.Work) != 1 {
		t.Errorf("%d looks at the same time", len(k.Work))
	}
	k.RunWork()

	if err := os.Remove(r.socket); err != nil { // as if /run were cleaned up
		t.Fatal(err)
	}
	next(t, k)
	k.RunWork()
	if _, err := r.client.Version(t.Context()); err != nil {
		t.Errorf("a removed socket did not come back: %v", err)
	}
}

func TestOccupiedPort_RetriedWithBackOff(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	r := newRig(t, func(c *Config) {
		c.HealthzAddress = "127.0.0.1"
		if c.HealthzPort, err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
	})
	a := New(Options{Listeners: r.listeners})("server").(*actor)
	k := supervisortest.New(t, messages.Server, a)
	k.RunWork()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if d := next(t, k); d != want*time.Second {
			t.Fatalf("tried again after %s, want %ds", d, want)
		}
		k.RunWork()
	}
	in := a.Inspect().(Inspection)
	if in.Failures != 8 || in.Listeners[0].Error != "" || !in.Listeners[0].Open || in.Listeners[1].Open ||
		in.Listeners[1].Error == "" {
		t.Errorf("inspection %+v", in)
	}
	r.listeners.Attach(r.tree)
	if got := body(t, r.raw("GET", "/healthz/listeners")); got != "ok" {
		t.Errorf("a taken port made the node unhealthy: %q", got)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	next(t, k)
	k.RunWork()
	if s := r.listeners.State()[1]; !s.Open || s.Error != "" {
		t.Errorf("the port is free, and it is %+v", s)
	}
	if d := next(t, k); d != lookEvery {
		t.Errorf("it looks again after %s", d)
	}
}

func TestNothingElseConcernsTheActor(t *testing.T) {
	k := startActor(t, newRig(t, nil))
	k.RunWork()
	k.Send(messages.Node, messages.ResendDesired{})
	if len(k.Ignored) != 1 || len(k.Take()) != 0 {
		t.Errorf("ignored %v", k.Ignored)
	}
}
