package runtime

import (
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

// Any number of starts bring the next audit forward, and share one.
func TestStartsAreAuditedSoon(t *testing.T) {
	f := newFake()
	r := settledRig(t, f, func(o *Options) {
		o.PollPeriod, o.AuditPeriod, o.StartedPeriod, o.PodLogsDir = time.Hour, time.Hour, 10*time.Second, t.TempDir()
	})
	audits := func(d time.Duration) int {
		f.took()
		r.Advance(d)
		n := 0
		for _, w := range r.Work {
			if w.Name == "audit" {
				n++
			}
		}
		r.work()
		return n
	}
	for range 3 {
		r.Send(r.Self(), eventsReceived{Batch{Expected: true}})
		if n := audits(3 * time.Second); n > 0 {
			t.Fatalf("%d audits before the time", n)
		}
	}
	if n := audits(time.Second); n != 1 {
		t.Fatalf("%d audits at the time", n)
	}
	if n := audits(10 * time.Minute); n > 0 {
		t.Errorf("%d audits more without a start", n)
	}
}

// Starts during an audit schedule the next one soon after the first of them.
func TestStartsDuringAnAudit(t *testing.T) {
	f := newFake()
	r := settledRig(t, f, func(o *Options) {
		o.PollPeriod, o.AuditPeriod, o.StartedPeriod, o.PodLogsDir = time.Hour, time.Hour, 10*time.Second, t.TempDir()
	})
	r.Send(messages.Pods, messages.GetAudit{})
	for range 3 {
		r.Send(r.Self(), eventsReceived{Batch{Expected: true}})
		r.Advance(3 * time.Second)
	}
	r.work() // it ends 9 s after the first start
	audits := func() (n int) {
		for _, w := range r.Work {
			if w.Name == "audit" {
				n++
			}
		}
		return n
	}
	if audits() > 0 {
		t.Fatal("another audit began before its time")
	}
	if r.Advance(time.Second); audits() != 1 {
		t.Errorf("%d audits 10 s after the first start", audits())
	}
}

// An audit in the middle of a start cannot report the pod: another one does, soon after.
func TestAStartThatOutlastsAnAudit(t *testing.T) {
	f := newFake()
	r := settledRig(t, f, func(o *Options) {
		o.PollPeriod, o.AuditPeriod, o.StartedPeriod, o.PodLogsDir = time.Hour, time.Hour, 10*time.Second, t.TempDir()
	})
	release := r.hold("u/start/a")
	f.pod("u", "a0r")
	r.Send(r.Self(), eventsReceived{Batch{Expected: true}})
	r.Advance(10 * time.Second)
	r.work()
	release()
	r.sent()
	r.Advance(10 * time.Second)
	r.work()
	r.expect("told after the start", r.sent(), "ready u[10.0.0.1,a0=running]")
	f.took()
	r.Advance(10 * time.Minute)
	r.work()
	r.expect("calls without a start", f.took(), "")
}

// A failed audit after a start is retried as soon.
func TestAnAuditThatFailsAfterAStart(t *testing.T) {
	f := newFake()
	r := settledRig(t, f, func(o *Options) {
		o.PollPeriod, o.AuditPeriod, o.StartedPeriod, o.PodLogsDir = time.Hour, time.Hour, 10*time.Second, t.TempDir()
	})
	f.pod("u", "a0r")
	f.fail("containers", errors.New("too busy"))
	r.Send(r.Self(), eventsReceived{Batch{Expected: true}})
	r.Advance(10 * time.Second)
	r.work()
	f.fail("containers", nil)
	r.sent()
	r.Advance(10 * time.Second)
	r.work()
	r.expect("told after the second audit", r.sent(), "ready audit(u) u[10.0.0.1,a0=running]")
}

func TestAStartIsAnEvent(t *testing.T) {
	e := NewEvents(nil, nil)
	e.running = true
	e.event(&runtimeapi.ContainerEventResponse{ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT})
	if b, ok := e.take(t.Context()); !ok || !b.Expected || len(b.Pods) > 0 {
		t.Errorf("%+v, %v", b, ok)
	}
	if b, ok := e.take(t.Context()); ok {
		t.Errorf("%+v", b)
	}
}

// The facts that a start has read are not read again, unless the lists contradict them.
func TestReadPod_FactsOfStarts(t *testing.T) {
	f, started := newFake(), &facts.StartFacts{}
	r := settledRig(t, f, func(o *Options) { o.Started = started })
	f.pod("u", "a0r", "b0r")
	add := func(id string, state messages.ContainerState) {
		started.AddContainer("u", messages.ContainerFact{ID: id, Name: id[len("u/s0/") : len(id)-1], State: state})
	}
	started.AddSandbox("u", messages.SandboxFact{ID: "u/s0", Ready: true, IPs: []string{"10.9.9.9"}})
	add("u/s0/a0", messages.ContainerRunning)
	add("u/s0/b0", messages.ContainerRunning)
	started.AddSandbox("gone", messages.SandboxFact{ID: "x"})
	f.set("u/s0/b0", exitedState, 3)
	r.Send(messages.PodAddress("u"), messages.ReadPod{UID: "u"})
	r.work()
	r.expect("calls", f.took(), "sandboxes:u containers:u container:u/s0/b0")
	r.expect("told", r.sent(), "u[10.9.9.9,b0=exited3,a0=running]")
	if left := started.Take("u"); len(left.Sandboxes)+len(left.Containers) > 0 {
		t.Errorf("%+v is still there after the reading", left)
	}

	r.Advance(time.Minute)
	r.work()
	if left := started.Take("gone"); len(left.Sandboxes) > 0 {
		t.Errorf("%+v is still there after an audit without the pod", left)
	}
}

// A fact of a sandbox without addresses, or of one that the lists show as stopped, does not count.
func TestReadPod_UnfinishedSandbox(t *testing.T) {
	f, started := newFake(), &facts.StartFacts{}
	r := settledRig(t, f, func(o *Options) { o.Started = started })
	f.pod("u", "a0r")
	started.AddSandbox("u", messages.SandboxFact{ID: "u/s0", Ready: true})
	started.AddContainer("u", messages.ContainerFact{ID: "u/s0/a0", Name: "a", State: messages.ContainerRunning})
	r.Send(messages.PodAddress("u"), messages.ReadPod{UID: "u"})
	r.work()
	r.expect("calls", f.took(), "sandboxes:u containers:u sandbox:u/s0")
	r.expect("told", r.sent(), "u[10.0.0.1,a0=running]")
}
