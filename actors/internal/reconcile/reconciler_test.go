package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// shelf is an in-memory driver.
type shelf struct {
	there map[string]string
	fails error
	enter chan struct{} // receives at the start of an Ensure; nil: Ensure does not block
	leave chan struct{}
	calls []string
}

func (s *shelf) Ensure(_ context.Context, op Operation[string, string]) (string, error) {
	s.calls = append(s.calls, "ensure "+op.Key+"="+op.Desired)
	if s.enter != nil {
		s.enter <- struct{}{}
		<-s.leave
	}
	switch {
	case op.Desired == "panic":
		panic("oh")
	case s.fails != nil:
		return "", s.fails
	}
	s.there[op.Key] = op.Desired
	return op.Desired, nil
}

func (s *shelf) Remove(_ context.Context, key string) error {
	s.calls = append(s.calls, "remove "+key)
	if s.fails == nil {
		delete(s.there, key)
	}
	return s.fails
}

func (s *shelf) Inventory(context.Context) (out []string, err error) {
	for key := range s.there {
		out = append(out, key)
	}
	slices.Sort(out)
	return out, s.fails
}

var errFinal = errors.New("never")

// rig is an actor with a reconciler and nothing else.
type rig struct {
	*supervisortest.Kit
	shelf *shelf
	*Reconciler[string, string]
	ops      *cri.Operations
	reports  []string
	renew    time.Duration
	timeout  time.Duration
	onReport func()
	judge    func(v Verdict[string]) Verdict[string]
}

func newRig(t *testing.T) *rig {
	r := &rig{shelf: &shelf{there: map[string]string{}}, ops: cri.NewOperations(), timeout: testTimeout}
	r.restart(t)
	return r
}

func (r *rig) restart(t *testing.T) {
	r.Reconciler = New(Options[string, string]{
		Name: "thing", Driver: r.shelf, Operations: r.ops, Prefix: "things/", OperationTimeout: time.Hour,
		Report: func(_ supervisors.Context, m Report[string, string]) {
			text := fmt.Sprintf("%s %s", m.Key, m.Phase)
			if m.Err != nil {
				text += fmt.Sprintf(": %v in %s, news: %t", m.Err, m.RetryAt.Sub(r.Now()), m.News)
			}
			r.reports = append(r.reports, strings.TrimSpace(text))
			if r.onReport != nil {
				r.onReport()
			}
		},
		Rules: Rules[string, string]{
			Same: func(a, b string) bool { return a == b }, Retry: backoff.Policy{First: time.Second, Max: 10 * time.Second},
			Timeout: r.timeout, RemoveTimeout: r.timeout, Grace: 2,
			Judge: func(now time.Time, _ Operation[string, string], v Verdict[string]) Verdict[string] {
				switch {
				case errors.Is(v.Err, errFinal):
					v.Again = time.Time{}
				case v.Err == nil && r.renew > 0:
					v.Again = now.Add(r.renew)
				}
				if r.judge != nil {
					return r.judge(v)
				}
				return v
			},
			Places: []int{-1},
		},
	})
	r.Kit = supervisortest.New(t, messages.Resources, receiver{r.Reconciler})
}

type receiver struct{ r *Reconciler[string, string] }

func (a receiver) Receive(ctx supervisors.Context, msg any) {
	if !a.r.Receive(ctx, msg) {
		ctx.Unhandled(msg)
	}
}

// sent runs all work and returns the reports.
func (r *rig) sent() string {
	r.RunWork()
	out := strings.Join(r.reports, "; ")
	r.reports = nil
	return out
}

func (r *rig) expect(want string) {
	r.TB.Helper()
	if got := r.sent(); got != want {
		r.TB.Errorf("reported %q, want %q", got, want)
	}
}

func TestAnObjectFromStartToFinish(t *testing.T) {
	r := newRig(t)
	for range 2 { // a repeated Ensure runs once more
		r.Ensure(r, "a", "x")
		r.expect("a Ready")
	}
	r.Ensure(r, "a", "y")
	r.expect("a Ready")
	r.Remove(r, "a")
	r.expect("a")
	if got := fmt.Sprint(r.shelf.calls, r.shelf.there); got != "[ensure a=x ensure a=x ensure a=y remove a] map[]" {
		t.Error(got)
	}
}

// Failures are retried after growing delays; a client that repeats its question gets the last failure.
func TestBackOff(t *testing.T) {
	r := newRig(t)
	r.shelf.fails = errors.New("no")
	r.Ensure(r, "a", "x")
	r.expect("a BackingOff: no in 1s, news: true")
	r.Ensure(r, "a", "x")
	r.expect("a BackingOff: no in 1s, news: false")
	r.Advance(time.Second)
	r.expect("a BackingOff: no in 2s, news: false")
	r.shelf.fails = errors.New("nor now")
	r.Advance(2 * time.Second)
	r.expect("a BackingOff: nor now in 4s, news: true")
	r.Ensure(r, "a", "y") // another desired state: the back-off starts again
	r.expect("a BackingOff: nor now in 1s, news: true")
	r.Remove(r, "a")
	r.expect("a BackingOff: nor now in 1s, news: true")
	r.shelf.fails = nil
	r.Advance(time.Second)
	r.expect("a")
}

func TestWhatCannotSucceedIsNotTriedAgain(t *testing.T) {
	r := newRig(t)
	r.shelf.fails = errFinal
	r.Ensure(r, "a", "x")
	r.sent()
	r.Advance(time.Hour)
	r.Ensure(r, "a", "x")
	if r.sent(); len(r.shelf.calls) != 1 || r.Reconciler.Inspect().Objects["a"].Phase != Refused {
		t.Errorf("%v, %+v", r.shelf.calls, r.Reconciler.Inspect())
	}
	r.shelf.fails = nil
	r.Ensure(r, "a", "y")
	r.expect("a Ready")
}

func TestRenewalAndTouch(t *testing.T) {
	r := newRig(t)
	r.renew = time.Minute
	r.Ensure(r, "a", "x")
	r.sent()
	r.Advance(time.Minute)
	r.expect("a Ready")
	r.Touch(r, "a", "unknown")
	r.Touch(r, "a") // in progress: once more after it
	r.expect("a Ready; a Ready")
	if in := r.Reconciler.Inspect(); len(in.Objects) != 1 {
		t.Errorf("%+v", in)
	}
}

// A forgotten object is left alone until the next sweep.
func TestForget(t *testing.T) {
	r := newRig(t)
	r.renew = time.Minute
	r.Ensure(r, "a", "x")
	r.Forget(r, "a") // in progress
	r.expect("a Ready")
	if r.Forget(r, "a"); len(r.Pending()) > 0 || len(r.Reconciler.Inspect().Objects) > 0 {
		t.Errorf("timers %v, %+v", r.Pending(), r.Reconciler.Inspect())
	}
	r.Sweep(r, nil, true)
	if r.sent(); len(r.shelf.there) > 0 {
		t.Errorf("there is %v", r.shelf.there)
	}
}

func TestAClosedLane(t *testing.T) {
	r := newRig(t)
	r.SetPlaces(r, 0, 0)
	r.Ensure(r, "a", "x")
	r.Ensure(r, "b", "x")
	r.expect("")
	r.SetPlaces(r, 0, 1)
	if len(r.Work) != 1 {
		t.Errorf("%d at once", len(r.Work))
	}
	r.expect("a Ready; b Ready")
}

// A restarted actor joins its predecessor's operation if the desired state is the same, and otherwise waits for its end.
func TestOperationsOutliveTheActor(t *testing.T) {
	for desired, calls := range map[string]int{"x": 1, "y": 2} {
		r := newRig(t)
		r.shelf.enter, r.shelf.leave = make(chan struct{}), make(chan struct{})
		r.Ensure(r, "a", "x")
		first := r.Work[0]
		cut, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { first.Run(cut); close(ended) }()
		<-r.shelf.enter
		cancel()
		<-ended
		r.restart(t)
		r.Ensure(r, "a", desired)
		go func() {
			for r.ops.Waiting("things/a") == 0 {
				time.Sleep(time.Millisecond)
			}
			r.shelf.leave <- struct{}{}
			if calls > 1 {
				<-r.shelf.enter
				r.shelf.leave <- struct{}{}
			}
		}()
		r.expect("a Ready")
		if r.shelf.there["a"] != desired || len(r.shelf.calls) != calls {
			t.Errorf("%s: %v, %v", desired, r.shelf.there, r.shelf.calls)
		}
	}
}

// A lost result is detected at the deadline; the operation is then joined or repeated.
func TestALostResult(t *testing.T) {
	r := newRig(t)
	r.Ensure(r, "a", "x")
	lost := r.Work[0]
	r.Work = nil
	r.Advance(testTimeout + resultSlack)
	r.expect("a BackingOff: the operation gave no result in time in 1s, news: true")
	r.Advance(time.Second)
	r.expect("a Ready")
	r.RunOne(lost)
	r.expect("")
	if c := r.Reconciler.Inspect().Counters; c.Begun != 2 || c.Overdue != 1 || c.Stale != 1 || c.Failed != 1 || c.Succeeded != 1 {
		t.Errorf("%+v", c)
	}
}

// An operation requested by a report has a deadline too.
func TestReportedOperation_LostResult(t *testing.T) {
	r := newRig(t)
	r.onReport = func() {
		r.onReport = nil
		r.Ensure(r, "a", "y")
	}
	r.Ensure(r, "a", "x")
	r.RunOne(r.Work[0])
	r.Work = nil // the work that the report began is lost
	r.reports = nil
	r.Advance(testTimeout + resultSlack)
	r.expect("a BackingOff: the operation gave no result in time in 1s, news: true")
	r.Advance(time.Second)
	r.expect("a Ready")
}

// A verdict with a retry time in the past does not lead to a busy loop.
func TestAFailureIsNeverTriedAgainAtOnce(t *testing.T) {
	r := newRig(t)
	r.judge = func(v Verdict[string]) Verdict[string] {
		return Verdict[string]{Err: errors.New("as before"), Again: r.Now().Add(-time.Minute)}
	}
	r.Ensure(r, "a", "x")
	r.expect("a BackingOff: as before in 1s, news: true")
	r.expect("")
	r.Advance(time.Second)
	r.expect("a BackingOff: as before in 2s, news: false")
}

func TestAPanicIsAFailureOfItsObject(t *testing.T) {
	r := newRig(t)
	r.Ensure(r, "a", "panic")
	r.Ensure(r, "b", "x")
	got := r.sent()
	if !strings.Contains(got, "a BackingOff: a bug in the agent, whose log has the stack: oh") || !strings.Contains(got, "b Ready") {
		t.Error(got)
	}
}

func TestInspectionAndOthersMessages(t *testing.T) {
	r := newRig(t)
	r.shelf.fails = errors.New("no")
	r.Ensure(r, "a", "x")
	r.sent()
	text, err := json.Marshal(r.Reconciler.Inspect())
	want := `"objects":{"a":{"phase":"BackingOff","error":"no","failures":1,"retryAt":"2026-01-02T03:04:06Z"}}`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v", text, err)
	}
	for _, msg := range []any{
		operationEnded{reconciler: "other"}, timerFired{reconciler: "other"}, inventoryEnded{reconciler: "other"}, "x",
	} {
		if r.Reconciler.Receive(r, msg) {
			t.Errorf("%+v is not its own", msg)
		}
	}
}

// Orphans are removed only when the set is complete, and with grace for recent requests.
func TestSweep(t *testing.T) {
	r := newRig(t)
	r.shelf.there["orphan"], r.shelf.there["wanted"] = "x", "x"
	r.Ensure(r, "fresh", "x")
	r.sent()
	sweep := func(want string, complete ...bool) {
		t.Helper()
		for _, c := range complete {
			r.Sweep(r, map[string]bool{"wanted": true}, c)
		}
		r.sent()
		if got, _ := r.shelf.Inventory(t.Context()); strings.Join(got, " ") != want {
			t.Errorf("there is %v, want %s", got, want)
		}
	}
	sweep("fresh orphan wanted", false)
	sweep("fresh orphan wanted", true, false) // the last one counts when the listing ends
	r.Ensure(r, "fresh", "x")
	sweep("fresh wanted", true)
	sweep("wanted", true)
	r.shelf.there["orphan"], r.shelf.fails = "x", errors.New("no")
	sweep("orphan wanted", true)
	r.shelf.fails = nil
	sweep("wanted", true)
}

// The table is whole: each phase can be reached and left, and an edge outside it fails.
func TestEdges(t *testing.T) {
	reached := map[Phase]bool{}
	for from, tos := range edges {
		if len(tos) == 0 {
			t.Errorf("%q is never left", from)
		}
		for _, to := range tos {
			reached[to] = true
		}
	}
	for phase := range edges {
		if !reached[phase] {
			t.Errorf("%q is never reached", phase)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	newMachine(testRules()).to(&object[int, int]{}, Ready)
}
