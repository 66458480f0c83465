package reconcile

import (
	"errors"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// Operation is one operation on one object.
type Operation[D, A any] struct {
	Key        string
	Generation uint64
	Remove     bool // to remove the object; else to ensure it
	Desired    D    // the state to ensure
	Actual     A    // the result of the last Ensure; zero if unknown
	Began      time.Time
}

// Verdict is the result of an Ensure.
type Verdict[A any] struct {
	Actual A
	Err    error // nil: the object is as desired
	// Again is when the object is ensured again; zero: not before something changes, as where trying again cannot help.
	Again time.Time
}

// Report is the result of the latest operation on an object.
type Report[D, A any] struct {
	Key     string
	Phase   Phase // Ready, BackingOff, Refused, or Absent once it is removed
	Desired D
	Actual  A
	Remove  bool // the object is not desired
	Asked   bool // a client awaits the removal
	Err     error
	RetryAt time.Time // zero: it is not tried again by itself
	// News is true when the failure differs from the last reported one.
	News bool
}

// Rules are the policy of one kind of objects: pure functions and figures.
type Rules[D, A any] struct {
	// Same reports whether two desired states are equal. Required.
	Same func(a, b D) bool
	// Retry is the back-off after failures, of each object by itself; it has no jitter.
	Retry backoff.Policy
	// Judge may replace the verdict on an Ensure, for example to renew a certificate. byDefault is the verdict without it. It
	// may be nil.
	Judge func(now time.Time, op Operation[D, A], byDefault Verdict[A]) Verdict[A]
	// Lane is the lane of an operation, an index into Places; nil: 0.
	Lane func(Operation[D, A]) int
	// Places is how many operations each lane has at a time; negative: no bound; none: one lane without a bound.
	Places []int
	// Share has the keys by which operations share the places of a lane; nil: the oldest go first.
	Share func(Operation[D, A]) []string
	// Timeout and RemoveTimeout are how long the end of an operation is awaited. It may go on after that.
	Timeout, RemoveTimeout time.Duration
	// Identity maps a key to its name in the inventory; nil means that they are equal.
	Identity func(key string) string
	// Grace is how many whole sets in a row must leave an object out that a client asked for, before it is removed: the
	// set may be older than the question, and the client may have gone without a word.
	Grace int
}

// errNoResult is the failure of an operation that gave no result before its deadline.
var errNoResult = errors.New("the operation gave no result in time")

// resultSlack is how much longer a result is awaited than the work that posts it runs.
const resultSlack = 10 * time.Second

// object is the state of one object. At most one operation on it runs at a time.
type object[D, A any] struct {
	key              string
	phase            Phase
	desired          D
	remove           bool // it is not desired
	removalRequested bool // a client awaits the removal
	actual           A
	inputsChanged    bool // its inputs have changed since the operation began
	lane             int
	release          func()          // gives its place back
	op               Operation[D, A] // the operation in progress, or the last one
	due              time.Time       // when the operation is overdue, or the object is ensured again; zero: never
	timer            uint64          // generation of the timer for that
	fails            int             // in a row
	err              error           // the last failure
	text             string          // of the last failure that was news
	missing          int             // whole sets in a row without it, since a client last asked
}

// machine decides for all objects of one kind. It is pure: state and event in, state and effects out; no clock, no I/O.
type machine[D, A any] struct {
	rules      Rules[D, A]
	objects    map[string]*object[D, A]
	lanes      []lane
	generation uint64
	sweep      sweep
	counters   Counters
	out        effects[D, A]
}

// effects are the consequences of an event, for the actor to carry out.
type effects[D, A any] struct {
	transitions []transition // for the log
	begin       []Operation[D, A]
	timers      []timer
	reports     []Report[D, A]
	list        uint64 // the generation of a listing to begin; 0: none
}

type transition struct {
	key      string
	from, to Phase
}

// timer is to come back at a time, as an event with the key and the generation, instead of any other timer of the
// key. Without a time there is to be none.
type timer struct {
	key        string
	generation uint64
	at         time.Time
}

func newMachine[D, A any](rules Rules[D, A]) *machine[D, A] {
	if len(rules.Places) == 0 {
		rules.Places = []int{-1}
	}
	m := &machine[D, A]{rules: rules, objects: map[string]*object[D, A]{}}
	for _, places := range rules.Places {
		m.lanes = append(m.lanes, lane{places: places, limit: shares.New("operations", places)})
	}
	return m
}

// ensure sets the desired state of an object. Repeating it ensures the object once more, or reports the last failure again.
func (m *machine[D, A]) ensure(now time.Time, key string, desired D) effects[D, A] {
	o := m.object(now, key)
	same := o.phase != Absent && !o.remove && m.rules.Same(o.desired, desired)
	o.desired, o.remove, o.removalRequested, o.missing = desired, false, false, 0
	if !same {
		o.forget()
	}
	if same && (o.phase == BackingOff || o.phase == Refused) {
		m.report(o)
	} else {
		m.queue(now, o)
	}
	return m.flush(now)
}

// discard removes an object. With asked, the client gets a report, and a failed removal is retried at once.
func (m *machine[D, A]) discard(now time.Time, key string, asked bool) effects[D, A] {
	m.unwant(now, m.object(now, key), asked)
	return m.flush(now)
}

func (m *machine[D, A]) unwant(now time.Time, o *object[D, A], asked bool) {
	if o.remove && !asked && o.phase != Absent {
		return // in progress, or retried by itself
	}
	var none D
	o.desired, o.remove, o.removalRequested = none, true, o.removalRequested || asked
	o.forget()
	m.queue(now, o)
}

// drop forgets an object that has no client left. The next sweep removes its remains.
func (m *machine[D, A]) drop(now time.Time, key string) effects[D, A] {
	if o := m.objects[key]; o != nil && (o.phase == Ready || o.phase == BackingOff || o.phase == Refused) {
		m.cancelTimer(o)
		m.to(o, Absent)
		delete(m.objects, key)
	}
	return m.flush(now)
}

// touch ensures present objects again after a change of their inputs.
func (m *machine[D, A]) touch(now time.Time, keys ...string) effects[D, A] {
	for _, key := range keys {
		switch o := m.objects[key]; {
		case o == nil || o.remove:
		case o.phase == Ensuring:
			o.inputsChanged = true
		case o.phase == Ready || o.phase == BackingOff:
			m.queue(now, o)
		}
	}
	return m.flush(now)
}

// handleEnd handles the end of an operation. A result of an earlier operation is stale.
func (m *machine[D, A]) handleEnd(now time.Time, key string, generation uint64, actual A, err error) effects[D, A] {
	if o := m.objects[key]; o != nil && o.busy() && o.op.Generation == generation {
		m.finish(now, o, actual, err)
	} else {
		m.counters.Stale++
	}
	return m.flush(now)
}

// timeout takes a timer.
func (m *machine[D, A]) timeout(now time.Time, key string, generation uint64) effects[D, A] {
	if o := m.objects[key]; o != nil && o.timer == generation {
		m.object(now, key)
	}
	return m.flush(now)
}

// object finds or creates an object. If it is due, it also handles that, with or without the timer.
func (m *machine[D, A]) object(now time.Time, key string) *object[D, A] {
	o := m.objects[key]
	if o == nil {
		o = &object[D, A]{key: key}
		m.objects[key] = o
	}
	if o.due.IsZero() || now.Before(o.due) {
		return o
	}
	if o.busy() {
		m.counters.Overdue++
		m.finish(now, o, o.op.Actual, errNoResult)
	} else {
		m.queue(now, o)
	}
	return o
}

// finish ends the operation in progress.
func (m *machine[D, A]) finish(now time.Time, o *object[D, A], actual A, err error) {
	m.lanes[o.lane].busy--
	o.release()
	m.cancelTimer(o)
	op, again := o.op, o.inputsChanged
	o.inputsChanged = false
	if op.Remove != o.remove || !o.remove && !m.rules.Same(op.Desired, o.desired) {
		m.enter(now, o) // something else is desired by now
		return
	}
	v := Verdict[A]{Actual: actual, Err: err}
	if err != nil {
		v.Again = now.Add(m.rules.Retry.After(o.fails+1, 0))
	}
	if m.rules.Judge != nil && !op.Remove {
		v = m.rules.Judge(now, op, v)
	}
	if v.Err != nil && !v.Again.IsZero() && !v.Again.After(now) {
		v.Again = now.Add(m.rules.Retry.After(o.fails+1, 0)) // a driver's judge may not make a loop without a rest
	}
	o.actual, o.err, o.due = v.Actual, v.Err, v.Again
	switch {
	case o.err == nil:
		m.counters.Succeeded++
		o.fails, o.text = 0, ""
		if o.remove {
			m.to(o, Absent)
			delete(m.objects, o.key)
		} else {
			m.to(o, Ready)
		}
	case o.due.IsZero():
		m.fail(o, Refused)
	default:
		m.fail(o, BackingOff)
	}
	m.report(o)
	o.removalRequested = false
	switch {
	case o.phase == Absent:
	case again:
		m.queue(now, o)
	case !o.due.IsZero():
		m.wake(o, o.due)
	}
}

func (m *machine[D, A]) fail(o *object[D, A], next Phase) {
	m.counters.Failed++
	o.fails++
	m.to(o, next)
}

// report adds a report of the last operation.
func (m *machine[D, A]) report(o *object[D, A]) {
	r := o.lastReport()
	if o.err != nil {
		r.News = o.text != o.err.Error()
		o.text = o.err.Error()
	}
	m.out.reports = append(m.out.reports, r)
}

func (o *object[D, A]) lastReport() Report[D, A] {
	return Report[D, A]{
		Key: o.key, Phase: o.phase, Desired: o.desired, Actual: o.actual, Remove: o.remove, Asked: o.removalRequested, Err: o.err,
		RetryAt: o.due,
	}
}

// wake has the object looked at again at a time.
func (m *machine[D, A]) wake(o *object[D, A], at time.Time) {
	m.generation++
	o.due, o.timer = at, m.generation
	m.out.timers = append(m.out.timers, timer{o.key, o.timer, at})
}

// cancelTimer has the object not looked at again by itself.
func (m *machine[D, A]) cancelTimer(o *object[D, A]) {
	if !o.due.IsZero() {
		o.due = time.Time{}
		m.out.timers = append(m.out.timers, timer{key: o.key})
	}
}

// flush ends each event: it starts operations that have a place, and returns the effects.
func (m *machine[D, A]) flush(now time.Time) effects[D, A] {
	m.admit(now)
	out := m.out
	m.out = effects[D, A]{}
	return out
}

func (o *object[D, A]) busy() bool { return o.phase == Ensuring || o.phase == Removing }

// forget drops the results of an obsolete desired state.
func (o *object[D, A]) forget() {
	var none A
	o.fails, o.err, o.text, o.actual = 0, nil, "", none
}
