package supervisors

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// verdicts answers with the next of its verdicts to each ping.
type verdicts struct {
	mu   sync.Mutex
	next []Verdict
}

func (v *verdicts) Before(d Delivery) Verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := d.Message.(ping); !ok || len(v.next) == 0 {
		return Verdict{}
	}
	now := v.next[0]
	v.next = v.next[1:]
	return now
}

func (v *verdicts) After(Delivery) Verdict { return Verdict{} }

type after struct{}

// awaitWorker waits until the worker is as it is wanted; it is bounded and proves nothing by its length.
func awaitWorker(t *testing.T, s *System, ok func(v Vitals) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if v, _ := s.VitalsOf("worker"); s.KindOf("worker") != "" && ok(v) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the worker did not become so")
		}
	}
}

func there(v Vitals) bool { return v.State == Running }
func busy(v Vitals) bool  { return v.Handling != nil && v.Handling.Message == "ping" }

// What an interceptor does to a message is in the recorder, and each effect is what its name says.
func TestEffectsOfAnInterceptor(t *testing.T) {
	released := make(chan struct{})
	for _, c := range []struct {
		verdict Verdict
		want    string // in the order of handling; an "after" is sent after the ping
	}{
		{Verdict{}, "ping after"},
		{Verdict{Effect: Drop}, "after"},
		{Verdict{Effect: Delay, For: 50 * time.Millisecond}, "after ping"},
		{Verdict{Effect: Duplicate}, "ping after ping"},
		{Verdict{Effect: Hold, For: time.Millisecond}, "ping after"},
		{Verdict{Effect: Hold, For: time.Hour, Until: released}, "ping after"},
		{Verdict{Effect: Panic}, "after"},
	} {
		c.verdict.Why = "a test"
		var mu sync.Mutex
		var got []string
		s, _ := startWorker(t, &verdicts{next: []Verdict{c.verdict}}, func(_ Context, msg any) {
			mu.Lock()
			defer mu.Unlock()
			if name := typeName(msg); name == "ping" || name == "after" {
				got = append(got, name)
			}
		})
		awaitWorker(t, s, there)
		s.Tell("worker", ping{})
		if c.verdict.Until != nil {
			awaitWorker(t, s, busy)
		}
		if c.verdict.Effect == Panic { // its mailbox goes with it
			awaitWorker(t, s, func(v Vitals) bool { return v.Restarts == 1 && there(v) })
		}
		s.Tell("worker", after{})
		if c.verdict.Until != nil {
			close(released)
		}
		order := func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), got...) }
		for deadline := time.Now().Add(time.Minute); len(order()) < len(strings.Fields(c.want)); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v: %v", c.verdict, order())
			}
		}
		names := strings.Join(order(), " ")
		if c.verdict.Effect == Duplicate && names == "ping ping after" { // the second is posted beside the other
			names = c.want
		}
		if names != c.want {
			t.Errorf("%+v: %s", c.verdict, names)
		}
		noted := 0
		for _, e := range s.Recorder().Last("") {
			if e.Kind == OfChaos && e.Digest == string(c.verdict.Effect)+": a test" && e.Message == "ping" && e.To == "worker" {
				noted++
			}
		}
		if noted > 1 || (noted == 1) != (c.verdict.Effect != None) {
			t.Errorf("%+v: it is %d times in the recorder", c.verdict, noted)
		}
	}
}

// An actor that is held is stopped all the same: startWorker's cleanup would fail.
func TestAHeldActorIsStopped(t *testing.T) {
	s, _ := startWorker(t, &verdicts{next: []Verdict{{Effect: Hold, For: time.Hour}}}, func(Context, any) {})
	awaitWorker(t, s, there)
	s.Tell("worker", ping{})
	awaitWorker(t, s, busy)
}
