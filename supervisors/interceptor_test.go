package supervisors

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/messages"
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

// awaitWorker waits until the worker's vitals satisfy ok. Its limit only ends a hang.
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

// Each effect of an interceptor happens as named, and is recorded.
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
		ids := map[uint64]bool{}
		for _, e := range s.Recorder().Select(Query{}) {
			if ids[e.ID] {
				t.Errorf("%+v: %v has the ID of another", c.verdict, e)
			}
			ids[e.ID] = true
			if e.Message == "ping" && e.Flow.ID != e.ID { // each begins a flow, also the duplicate and the record of the effect
				t.Errorf("%+v: %v is of flow %d", c.verdict, e, e.Flow.ID)
			}
		}
		if noted > 1 || (noted == 1) != (c.verdict.Effect != None) {
			t.Errorf("%+v: it is %d times in the recorder", c.verdict, noted)
		}
	}
}

// delayInterceptor delays each message whose phase asks for it.
type delayInterceptor struct{ Interceptor }

func (delayInterceptor) Before(d Delivery) Verdict {
	m, _ := d.Message.(messages.PodStatusChanged)
	return Verdict{Effect: Effect(m.Phase), For: 20 * time.Millisecond}
}

func (delayInterceptor) After(Delivery) Verdict { return Verdict{} }

// A delayed older state is not handled after a newer one. States of other pods are not affected.
func TestNoOlderWordAfterANewerOne(t *testing.T) {
	var mu sync.Mutex
	var got []string
	s, _ := startWorker(t, delayInterceptor{}, func(_ Context, msg any) {
		if m, ok := msg.(messages.PodStatusChanged); ok {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m.UID+":"+m.Phase)
		}
	})
	awaitWorker(t, s, there)
	s.Tell("worker", messages.PodStatusChanged{UID: "a", Phase: string(Delay)})
	s.Tell("worker", messages.PodStatusChanged{UID: "b", Phase: string(Delay)})
	s.Tell("worker", messages.PodStatusChanged{UID: "a"})
	overtaken := func(e Entry) bool { return e.Kind == OfChaos && strings.HasPrefix(e.Digest, "overtaken") }
	settled := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= 2 && slices.ContainsFunc(s.Recorder().Last("a"), overtaken)
	}
	for deadline := time.Now().Add(time.Minute); !settled(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the older word was not dropped: ", got)
		}
	}
	if want := []string{"a:", "b:delay"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// A restart of the receiver changes nothing of it.
	s.Tell("worker", messages.PodStatusChanged{UID: "c"})
	s.Tell("worker", messages.PodStatusChanged{UID: "d", Phase: string(Panic)})
	awaitWorker(t, s, func(v Vitals) bool { return v.Restarts == 1 && there(v) })
	s.post("worker", &envelope{id: 1, msg: messages.PodStatusChanged{UID: "c"}, intercepted: true, flow: Flow{Pod: "c"}})
	for deadline := time.Now().Add(time.Minute); !slices.ContainsFunc(s.Recorder().Last("c"), overtaken); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the older word was not dropped after a restart")
		}
	}
}

// A word about all replaces those about each, and the other way round.
func TestWhatReplacesWhat(t *testing.T) {
	one := func(uid string) any { return messages.PodStatusWanted{UID: uid} }
	all := any(messages.PodStatusesWanted{})
	for _, c := range []struct {
		first, then any // then was sent before first
		taken       bool
	}{
		{one("a"), one("a"), false},
		{one("a"), one("b"), true},
		{all, one("a"), false},
		{one("a"), all, false},
		{all, all, false},
		{all, messages.GetDesired{UID: "a"}, true},
		{messages.UnmountVolumes{UID: "a"}, messages.MountVolumes{UID: "a"}, false},
		{messages.ContainerReported{UID: "a", StopFailed: "busy"}, messages.ContainerReported{UID: "a"}, true},
		{messages.Started{Desired: messages.RunContainer{}}, messages.StopContainer{UID: "a"}, false},
		{messages.Started{}, messages.StopContainer{UID: "a"}, true},
	} {
		var n sequenceFilter
		if !n.take("worker", &envelope{id: 5, from: messages.Pods, msg: c.first}) ||
			n.take("worker", &envelope{id: 4, from: messages.Pods, msg: c.then}) != c.taken {
			t.Errorf("%T, then an older %T: taken %v", c.first, c.then, !c.taken)
		}
		if !n.take("worker", &envelope{id: 6, from: messages.Pods, msg: c.then}) || !n.take("worker", &envelope{id: 1, from: messages.File, msg: c.then}) {
			t.Errorf("%T, then a newer %T or another sender's: not taken", c.first, c.then)
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
