package reconcile

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

// lane is a class of operations with places of its own, so that slow operations do not delay other lanes. It starts the
// oldest operation that has a share left.
type lane struct {
	places int           // negative: no bound
	limit  *shares.Limit // of so many places
	busy   int
	queue  []string
}

// take takes a place for an operation.
func (l *lane) take(keys []string) (release func(), err error) {
	if l.places < 0 {
		return func() {}, nil
	}
	return l.limit.Take(keys...)
}

// queue appends an object to the lane of its next operation. During an operation it does nothing: finish decides then.
func (m *machine[D, A]) queue(now time.Time, o *object[D, A]) {
	if !o.busy() {
		m.enter(now, o)
	}
}

func (m *machine[D, A]) enter(now time.Time, o *object[D, A]) {
	next := 0
	if m.rules.Lane != nil {
		next = m.rules.Lane(m.operation(now, o))
	}
	if o.phase == Queued {
		if o.lane == next {
			return
		}
		m.lanes[o.lane].leave(o.key)
	} else {
		m.to(o, Queued)
	}
	m.cancelTimer(o)
	o.lane = next
	m.lanes[next].queue = append(m.lanes[next].queue, o.key)
}

func (l *lane) leave(key string) {
	l.queue = slices.DeleteFunc(l.queue, func(k string) bool { return k == key })
}

func (m *machine[D, A]) operation(now time.Time, o *object[D, A]) Operation[D, A] {
	return Operation[D, A]{Key: o.key, Remove: o.remove, Desired: o.desired, Actual: o.actual, Began: now}
}

// setPlaces changes how many operations a lane has at a time.
func (m *machine[D, A]) setPlaces(now time.Time, lane, places int) effects[D, A] {
	m.lanes[lane].places = places
	m.lanes[lane].limit.SetMost(places)
	return m.flush(now)
}

// admit begins operations while there are places.
func (m *machine[D, A]) admit(now time.Time) {
	for i := range m.lanes {
		l := &m.lanes[i]
		l.queue = slices.DeleteFunc(l.queue, func(key string) bool {
			if l.places >= 0 && l.busy >= l.places {
				return false
			}
			o := m.objects[key]
			var keys []string
			if m.rules.Share != nil {
				keys = m.rules.Share(m.operation(now, o))
			}
			release, err := l.take(keys)
			if err != nil {
				return false
			}
			o.release = release
			l.busy++
			m.begin(now, o)
			return true
		})
	}
}

func (m *machine[D, A]) begin(now time.Time, o *object[D, A]) {
	m.counters.Begun++
	m.generation++
	o.op = m.operation(now, o)
	o.op.Generation = m.generation
	timeout := m.rules.Timeout
	if o.remove {
		timeout = m.rules.RemoveTimeout
		m.to(o, Removing)
	} else {
		m.to(o, Ensuring)
	}
	m.out.begin = append(m.out.begin, o.op)
	m.wake(o, now.Add(timeout+resultSlack))
}
