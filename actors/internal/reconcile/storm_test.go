package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/supervisors/backoff"
)

const (
	testTimeout = 30 * time.Second
	testGrace   = 2
	testPlaces  = 2
)

var errTest = errors.New("no")

func testRules() Rules[int, int] {
	return Rules[int, int]{
		Same:    func(a, b int) bool { return a == b },
		Retry:   backoff.Policy{First: time.Second, Max: 10 * time.Second},
		Timeout: testTimeout, RemoveTimeout: testTimeout, Grace: testGrace,
		Places: []int{testPlaces, 1},
		Lane: func(op Operation[int, int]) int {
			if op.Remove {
				return 1
			}
			return 0
		},
	}
}

// storm runs the engine with lost, doubled and delayed messages, failing operations and restarts of the actor.
type storm struct {
	rt    *rapid.T
	now   time.Time
	m     *machine[int, int]
	life  int            // of the machine
	there map[string]int // the actual world

	// running is the process-wide table of operations: it outlives the machine.
	running map[string]Operation[int, int]
	workers []worker // waiting for the end of an operation, or for their turn
	posted  []result // results on their way
	timers  []timer
	list    uint64 // an inventory in progress

	desired map[string]int // by key; not in it: not desired
	// The requests that this machine received; only these allow removals.
	asked  map[string]bool // a client asked for the removal
	ensure map[string]bool // a client asked for the object,
	missed map[string]int  // and so many complete sets in a row left it out since
	whole  map[string]bool // the last set; nil: not complete
	orphan map[string]bool // it was left behind, and no client has asked for it since

	outstanding map[string]time.Time // by key, when the operation that the machine believes in is overdue
	lanes       map[string]int
}

type worker struct {
	life    int
	op      Operation[int, int]
	waiting bool // it has begun or joined
}

type result struct {
	life   int
	op     Operation[int, int]
	actual int
	err    error
}

func TestStorm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &storm{rt: rt, now: time.Unix(0, 0), there: map[string]int{}, desired: map[string]int{}}
		s.running = map[string]Operation[int, int]{}
		for i := range rapid.IntRange(0, 3).Draw(rt, "left of an earlier life") {
			s.there[fmt.Sprint("orphan", i)] = 1
		}
		s.revive()
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			s.act()
		}
		s.settle()
	})
}

func (s *storm) revive() {
	s.life++
	s.m = newMachine(testRules())
	s.timers, s.list, s.whole = nil, 0, nil
	s.workers = slices.DeleteFunc(s.workers, func(w worker) bool { return true })
	s.asked, s.ensure, s.missed, s.orphan = map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]bool{}
	s.outstanding, s.lanes = map[string]time.Time{}, map[string]int{}
}

func (s *storm) draw(n int, what string) int {
	if n == 0 {
		return -1
	}
	return rapid.IntRange(0, n-1).Draw(s.rt, what)
}

func (s *storm) act() {
	key := fmt.Sprint("key", s.draw(4, "key"))
	switch rapid.SampledFrom([]string{
		"desire", "desire", "undesire", "touch", "work", "work", "end", "end", "post", "post", "time", "sweep", "listed", "kill",
	}).Draw(s.rt, "act") {
	case "desire":
		s.desired[key] = s.draw(3, "desired")
		s.ask(key, s.draw(3, "times"))
	case "undesire":
		delete(s.desired, key)
		s.ask(key, s.draw(3, "times"))
	case "touch":
		s.take(s.m.touch(s.now, key))
	case "work":
		s.work(s.draw(len(s.workers), "worker"))
	case "end":
		s.end(s.draw(len(s.running), "running"), rapid.Bool().Draw(s.rt, "fails"))
	case "post":
		s.post(s.draw(len(s.posted), "result"), rapid.SampledFrom([]int{1, 1, 0, 2}).Draw(s.rt, "times"))
	case "time":
		s.pass(time.Duration(s.draw(60, "seconds"))*time.Second, rapid.IntRange(0, 3).Draw(s.rt, "timers lost") == 0)
	case "sweep":
		s.sweep(rapid.Bool().Draw(s.rt, "complete"))
	case "listed":
		s.listed(rapid.Bool().Draw(s.rt, "fails"))
	case "kill":
		s.revive()
	}
}

// ask sends a client's desired state this many times; 0 loses the message.
func (s *storm) ask(key string, times int) {
	for range times {
		if value, desired := s.desired[key]; desired {
			s.ensure[key], s.asked[key], s.orphan[key], s.missed[key] = true, false, false, 0
			s.take(s.m.ensure(s.now, key, value))
		} else {
			s.asked[key] = true
			s.take(s.m.discard(s.now, key, true))
		}
	}
}

func (s *storm) sweep(complete bool) {
	wanted := map[string]bool{}
	for key := range s.desired {
		wanted[key] = true
	}
	s.whole = nil
	if complete {
		s.whole = wanted
		for key, asked := range s.ensure {
			if s.missed[key]++; wanted[key] {
				s.missed[key] = 0
			}
			s.orphan[key] = s.orphan[key] || asked && s.missed[key] >= testGrace
		}
	}
	s.take(s.m.setDesired(s.now, maps.Clone(wanted), complete))
}

func (s *storm) listed(fails bool) {
	if s.list == 0 {
		return
	}
	generation, err := s.list, error(nil)
	if s.list = 0; fails {
		err = errTest
	}
	for key := range s.there {
		if err == nil && s.whole != nil && !s.whole[key] && !s.ensure[key] {
			s.orphan[key] = true
		}
	}
	out, _ := s.m.listed(s.now, generation, slices.Sorted(maps.Keys(s.there)), err)
	s.take(out)
}

// take carries out effects and checks the invariants.
func (s *storm) take(out effects[int, int]) {
	for key, overdue := range s.outstanding {
		if !s.now.Before(overdue) {
			s.free(key)
		}
	}
	for _, op := range out.begin {
		if _, busy := s.outstanding[op.Key]; busy {
			s.rt.Fatalf("two operations at once on %s", op.Key)
		}
		lane := testRules().Lane(op)
		s.outstanding[op.Key], s.lanes[op.Key] = s.now.Add(testTimeout+resultSlack), lane
		busy := 0
		for _, l := range s.lanes {
			if l == lane {
				busy++
			}
		}
		if busy > s.m.lanes[lane].places {
			s.rt.Fatalf("%d operations at once in lane %d", busy, lane)
		}
		if op.Remove && !s.asked[op.Key] && !s.orphan[op.Key] {
			s.rt.Fatalf("%s is removed, and nobody asked for that, nor was it left behind", op.Key)
		}
		s.workers = append(s.workers, worker{life: s.life, op: op})
	}
	for _, t := range out.timers {
		if t.at.IsZero() {
			continue // one that was cancelled may fire all the same
		}
		s.timers = append(s.timers, t)
	}
	if out.list != 0 {
		s.list = out.list
	}
	for _, r := range out.reports {
		if r.Phase == Absent {
			s.ensure[r.Key] = false
		}
		if value, ok := s.there[r.Key]; r.Phase == Ready && r.Actual != r.Desired {
			s.rt.Fatalf("%s is reported to be %d, and desired is %d; there is %d, %t", r.Key, r.Actual, r.Desired, value, ok)
		}
	}
}

func (s *storm) free(key string) {
	delete(s.outstanding, key)
	delete(s.lanes, key)
}

// work lets a worker join an operation in progress, begin one, or wait.
func (s *storm) work(i int) {
	if i < 0 {
		return
	}
	w := &s.workers[i]
	under, busy := s.running[w.op.Key]
	switch {
	case w.waiting:
	case !busy:
		s.running[w.op.Key] = w.op
		w.waiting = true
	case under.Remove == w.op.Remove && under.Desired == w.op.Desired:
		w.waiting = true
	}
}

// end ends an operation: it changes the world and passes the result to all waiters.
func (s *storm) end(i int, fails bool) {
	if i < 0 {
		return
	}
	key := slices.Sorted(maps.Keys(s.running))[i]
	op := s.running[key]
	delete(s.running, key)
	r := result{op: op, actual: op.Desired}
	switch {
	case fails:
		r.err = errTest
	case op.Remove:
		delete(s.there, key)
	default:
		s.there[key] = op.Desired
	}
	s.workers = slices.DeleteFunc(s.workers, func(w worker) bool {
		if w.op.Key != key || !w.waiting {
			return false
		}
		r := r
		r.life, r.op = w.life, w.op
		s.posted = append(s.posted, r)
		return true
	})
}

// post delivers a result so many times; one of an earlier life of the actor never arrives.
func (s *storm) post(i, times int) {
	if i < 0 {
		return
	}
	r := s.posted[i]
	s.posted = slices.Delete(s.posted, i, i+1)
	for range times {
		if r.life != s.life {
			continue
		}
		if o := s.m.objects[r.op.Key]; o != nil && o.busy() && o.op.Generation == r.op.Generation {
			s.free(r.op.Key)
		}
		s.take(s.m.handleEnd(s.now, r.op.Key, r.op.Generation, r.actual, r.err))
	}
}

// pass lets time pass, with the timers that are due, unless they are lost.
func (s *storm) pass(d time.Duration, lost bool) {
	s.now = s.now.Add(d)
	due := s.timers
	s.timers = nil
	for _, t := range due {
		switch {
		case s.now.Before(t.at):
			s.timers = append(s.timers, t)
		case !lost:
			s.take(s.m.timeout(s.now, t.key, t.generation))
		}
	}
}

// settle is a world in which everything works, with clients that ask again: all becomes as desired.
func (s *storm) settle() {
	for range 6 {
		for i := range 4 {
			if key := fmt.Sprint("key", i); s.known(key) {
				s.ask(key, 1)
			}
		}
		s.sweep(true)
		for range 200 {
			for i := range s.workers {
				s.work(i)
			}
			s.end(min(len(s.running), 1)-1, false)
			s.post(min(len(s.posted), 1)-1, 1)
			s.listed(false)
		}
		s.pass(testTimeout+2*resultSlack, false)
	}
	if !maps.Equal(s.there, s.desired) {
		s.rt.Fatalf("there is %v, desired %v; %+v", s.there, s.desired, s.m.inspect())
	}
	in := s.m.inspect()
	for key, o := range in.Objects {
		if _, desired := s.desired[key]; !desired || o.Phase != Ready {
			s.rt.Fatalf("%s is %+v, desired: %t", key, o, desired)
		}
	}
	if in.Busy+in.Waiting > 0 {
		s.rt.Fatalf("something is still to be done: %+v", in)
	}
}

// known reports whether a client would repeat its request for the key: for a desired object, or for the removal of a present
// one.
func (s *storm) known(key string) bool {
	_, desired := s.desired[key]
	_, there := s.there[key]
	return desired || there || s.running[key].Key != ""
}
