package cri

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// waitFor yields until the condition holds; the test's own time limit ends it.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		if t.Context().Err() != nil {
			t.Fatal("the condition never came true")
		}
		runtime.Gosched()
	}
}

func (q *slotQueue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiters)
}

// idle fails the test if a call holds a slot or waits for one.
func (q *slotQueue) idle(t *testing.T) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inUse != 0 || len(q.waiters) != 0 {
		t.Errorf("%d in use, %d waiting", q.inUse, len(q.waiters))
	}
}

func TestLimits(t *testing.T) {
	work := max(3*runtime.NumCPU(), 4)
	got := Limits{ClassStart: 1, ClassPull: 3}.withDefaults()
	if got != (Limits{ClassStart: 1, ClassStop: work, ClassRemove: work, ClassPull: 3, ClassExec: 32, ClassRead: 2 * work}) {
		t.Errorf("%+v on %d processors", got, runtime.NumCPU())
	}
}

func TestPriority(t *testing.T) {
	ctx := t.Context()
	if Priority(ctx) != NodePriority || Priority(WithPriority(ctx, 7)) != 7 || Priority(WithPriority(ctx, -7)) <= NodePriority {
		t.Error("a context's priority is not what was put in")
	}
}

// Removals for the node go after those of pods. A start's own removal waits for no removal.
func TestRemovals(t *testing.T) {
	c := fakeClient(t, &fakeRuntime{}, Options{Limits: Limits{ClassRemove: 1, ClassStop: 1}})
	removals := c.budget[ClassRemove]
	if err := removals.acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, ctx := range []context.Context{ctx, WithPriority(ctx, 7)} {
		all.Go(func() {
			if err := c.RemoveContainer(ctx, "id"); !IsNotSent(err) {
				t.Errorf("got %v from a removal that was given up", err)
			}
		})
		waitFor(t, func() bool { return removals.waiting() == i+1 })
	}
	removals.mu.Lock()
	first := removals.waiters[0].priority
	removals.mu.Unlock()
	if first != 7 {
		t.Errorf("the priority %d is served first, want the pod's", first)
	}
	if err := c.RemoveContainer(PartOfStart(t.Context()), "id"); IsNotSent(err) {
		t.Errorf("got %v from a start's removal", err)
	}
	cancel()
	all.Wait()
	removals.release()
	if priorityIn(t.Context(), ClassRead) != NodePriority || priorityIn(t.Context(), ClassStop) <= NodePriority {
		t.Error("a reading for the node does not go first, or a stop does")
	}
}

// Hung removals of starts hold a third of the starts' slots. Further ones wait, and other starts do not.
func TestRemovals_HungInStarts(t *testing.T) {
	c := fakeClient(t, &fakeRuntime{}, Options{Limits: Limits{ClassStart: 6}})
	const hung = 2
	ctx, cancel := context.WithCancel(PartOfStart(t.Context()))
	defer cancel()
	_, queues := c.queuesOf(ctx, "RemoveContainer")
	var all sync.WaitGroup
	defer all.Wait()
	granted := make(chan struct{}, 6)
	for range 6 {
		all.Go(func() {
			for _, q := range queues {
				if q.acquire(ctx, 0) != nil {
					return
				}
				defer q.release()
			}
			granted <- struct{}{}
			<-ctx.Done()
		})
	}
	waitFor(t, func() bool { return c.startRemovals.waiting() == 4 })
	for range hung {
		<-granted
	}
	if _, err := c.CreateContainer(t.Context(), "sandbox", nil, nil); IsNotSent(err) {
		t.Errorf("%d hung removals block a start: %v", hung, err)
	}
	if starts := c.budget[ClassStart]; starts.inUse != hung {
		t.Errorf("hung removals hold %d slots of 6, want %d", starts.inUse, hung)
	}
	cancel()
}

// TestOldestPodFirst queues waiters in random order behind one holder. They are served by priority, then by arrival, and by
// arrival at each aged turn.
func TestOldestPodFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		priorities := rapid.SliceOfN(rapid.Int64Range(-3, 3), 1, 20).Draw(rt, "priorities")
		q := &slotQueue{limit: 1}
		if err := q.acquire(t.Context(), 0); err != nil {
			rt.Fatal(err)
		}
		type turn struct {
			priority int64
			arrival  int
		}
		turns := make(chan turn, len(priorities))
		var all sync.WaitGroup
		for i, p := range priorities {
			all.Go(func() {
				if err := q.acquire(t.Context(), p); err != nil {
					t.Error(err)
					return
				}
				turns <- turn{p, i}
				q.release()
			})
			waitFor(t, func() bool { return q.waiting() == i+1 })
		}
		q.release()
		all.Wait()
		close(turns)
		var got []turn
		for tn := range turns {
			got = append(got, tn)
		}
		rest := make([]turn, len(priorities))
		for i, p := range priorities {
			rest[i] = turn{p, i}
		}
		var want []turn
		for n := 1; len(rest) > 0; n++ {
			first := slices.MinFunc(rest, func(a, b turn) int {
				if n%agedTurn == 0 {
					return a.arrival - b.arrival
				}
				return cmp.Or(cmp.Compare(a.priority, b.priority), a.arrival-b.arrival)
			})
			want = append(want, first)
			rest = slices.DeleteFunc(rest, func(t turn) bool { return t == first })
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("got the order %v, want %v", got, want)
		}
		q.idle(t)
	})
}

// An older pod with calls waiting at all times does not shut out a younger pod.
func TestSlotQueue_LongestWaitHasTurns(t *testing.T) {
	q := &slotQueue{limit: 1}
	if err := q.acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	order := make(chan int64, 1)
	var all sync.WaitGroup
	ask := func(priority int64) {
		before := q.waiting()
		all.Go(func() {
			if err := q.acquire(t.Context(), priority); err != nil {
				t.Error(err)
				return
			}
			order <- priority
		})
		waitFor(t, func() bool { return q.waiting() == before+1 })
	}
	ask(2)
	served := 0
	for range 2 * agedTurn {
		ask(1)
		q.release()
		if <-order == 2 {
			served++
		}
	}
	for q.waiting() > 0 {
		q.release()
		<-order
	}
	all.Wait()
	q.release()
	if served != 1 {
		t.Errorf("the younger pod was served %d times in %d turns, want once", served, 2*agedTurn)
	}
	q.idle(t)
}

// TestSlotQueue_Yields: the calls of a queue that yields wait while another queue is busy, for up to patience. Then a third of
// the slots is used, and all of them once the others are idle.
func TestSlotQueue_Yields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stops, removals := &slotQueue{limit: 2}, &slotQueue{limit: 6}
		removals.yieldTo(stops)
		take := func(q *slotQueue) {
			t.Helper()
			if err := q.acquire(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		take(stops)
		var granted atomic.Int32
		for range 10 {
			go func() {
				if removals.acquire(t.Context(), 0) == nil {
					granted.Add(1)
				}
			}()
		}
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if n := granted.Load(); n != want {
				t.Errorf("%s: got %d removals, want %d", when, n, want)
			}
		}
		expect("beside a stop", 0)
		time.Sleep(patience - 1)
		expect("just before the end of their patience", 0)
		time.Sleep(1) //nolint:staticcheck // one nanosecond is meant
		expect("at its end", 2)
		take(stops) // a stop waits for no removal
		removals.release()
		expect("once one has ended", 3)
		removals.release()
		removals.release()
		expect("later ones wait no more", 5)
		stops.release()
		expect("beside another stop", 5)
		stops.release()
		expect("once all stops have ended", 9)
		for range 7 {
			removals.release()
		}
		expect("at the end", 10)
		removals.idle(t)
		stops.idle(t)
	})
}

// Signals are sent a few at a time. Containers that use their grace period and calls that hang keep them from others for a known
// time only.
func TestSlotQueue_Signals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &slotQueue{limit: 2}
		sent := make(chan func(), 5)
		for range cap(sent) {
			go func() {
				end, err := q.take(t.Context(), 0, true)
				if err != nil {
					t.Error(err)
				}
				sent <- end
			}()
		}
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n := len(sent); n != want {
				t.Errorf("%s: got %d signals, want %d", when, n, want)
			}
		}
		expect("at first", 2)
		first := <-sent
		first()
		sent <- first
		expect("after the exit of a container", 3)
		time.Sleep(signalHold)
		expect("while the others use their grace period", 5)
		time.Sleep(signalHold)
		for range cap(sent) {
			(<-sent)() // the second time for the first one, which changes nothing
		}
		q.idle(t)

		for range 2 { // these hang
			if err := q.acquire(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		refused := make(chan error)
		go func() {
			_, err := q.take(gone, 0, true)
			refused <- err
		}()
		synctest.Wait()
		leave()
		if err := <-refused; err == nil {
			t.Error("a caller that has left got a slot")
		}
		began := time.Now()
		end, err := q.take(t.Context(), 0, true)
		if waited := time.Since(began); err != nil || waited != patience {
			t.Errorf("beside calls that hang it waited %s: %v", waited, err)
		}
		end()
		if q.inUse != 2 {
			t.Errorf("%d slots are in use, want the 2 of the calls that hang", q.inUse)
		}
	})
}

// TestAPodUnderWayOvertakes starts two pods through one slot: the older pod's container is served before the younger pod's
// sandbox, although that call arrived first.
func TestAPodUnderWayOvertakes(t *testing.T) {
	q := &slotQueue{limit: 1}
	older, younger := WithPriority(t.Context(), 1), WithPriority(t.Context(), 2)
	if err := q.acquire(older, Priority(older)); err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	var all sync.WaitGroup
	take := func(ctx context.Context, name string) {
		all.Go(func() {
			if err := q.acquire(ctx, Priority(ctx)); err != nil {
				t.Error(err)
				return
			}
			order <- name
			q.release()
		})
	}
	take(younger, "sandbox of the younger")
	waitFor(t, func() bool { return q.waiting() == 1 })
	take(older, "container of the older")
	waitFor(t, func() bool { return q.waiting() == 2 })
	q.release()
	all.Wait()
	if got := <-order; got != "container of the older" {
		t.Errorf("first served: %s", got)
	}
}

// TestLimitHoldsUnderCancellation runs many callers, half of which give up at a random moment, and counts concurrent holders.
func TestLimitHoldsUnderCancellation(t *testing.T) {
	const limit, callers = 3, 200
	q := &slotQueue{limit: limit}
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		ctx, cancel := context.WithCancel(t.Context())
		if i%2 == 0 {
			all.Go(cancel)
		}
		all.Go(func() {
			defer cancel()
			if err := q.acquire(ctx, int64(i%7)); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			n := inside.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			runtime.Gosched()
			inside.Add(-1)
			q.release()
		})
	}
	all.Wait()
	if most.Load() > limit {
		t.Errorf("%d callers were inside at once, %d are allowed", most.Load(), limit)
	}
	q.idle(t)
}

func TestAnEndedContextGetsNoSlot(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := &slotQueue{limit: 1}
	if err := q.acquire(ctx, 0); !errors.Is(err, context.Canceled) || q.inUse != 0 {
		t.Errorf("%v, %d in use", err, q.inUse)
	}
}

// TestSlot_OfLeavingCallerPassesOn cancels a waiter and hands it the slot
// before it can leave the queue.
func TestSlot_OfLeavingCallerPassesOn(t *testing.T) {
	q := &slotQueue{limit: 1}
	for range 100 {
		if err := q.acquire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- q.acquire(ctx, 0) }()
		waitFor(t, func() bool { return q.waiting() == 1 })
		q.mu.Lock()
		cancel()
		close(q.waiters[0].granted) // as release does
		q.waiters = q.waiters[:0]
		q.mu.Unlock()
		if err := <-left; err == nil {
			q.release()
		}
		q.idle(t)
	}
}

// TestSlotQueue_Yielding_HungCall: a call that hangs blocks no other call of its queue once the other queues are idle.
func TestSlotQueue_Yielding_HungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts, removals := &slotQueue{limit: 4}, &slotQueue{limit: 4}
		removals.yieldTo(starts)
		for _, q := range []*slotQueue{removals, starts} { // the removal hangs
			if err := q.acquire(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		var granted atomic.Int32
		for range 3 {
			go func() {
				if removals.acquire(t.Context(), 0) == nil {
					granted.Add(1)
				}
			}()
		}
		synctest.Wait()
		if n := granted.Load(); n != 0 {
			t.Errorf("%d removals run beside a start and another removal, want 0", n)
		}
		starts.release()
		synctest.Wait()
		if n := granted.Load(); n != 3 {
			t.Errorf("%d removals run beside the hung one, want 3", n)
		}
	})
}
