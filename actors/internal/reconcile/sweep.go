package reconcile

import (
	"maps"
	"slices"
	"time"
)

// sweep is the state of the latest set of desired objects, and of the inventory.
type sweep struct {
	desired  map[string]bool // the last whole set
	complete bool            // every source has reported
	listing  uint64          // generation of the inventory in progress; 0: none
	due      time.Time       // when that is overdue
	repeat   bool            // it is to be done once more
	text     string          // of the last failure that was news
}

// setDesired sets the whole set of desired objects. An incomplete set removes nothing.
func (m *machine[D, A]) setDesired(now time.Time, wanted map[string]bool, complete bool) effects[D, A] {
	m.sweep.desired, m.sweep.complete = wanted, complete
	for _, key := range m.keys() {
		o := m.object(now, key)
		switch {
		case !complete || o.remove:
		case wanted[key]:
			o.missing = 0
		default:
			if o.missing++; o.missing >= m.rules.Grace {
				m.orphan(now, o)
			}
		}
	}
	if complete {
		m.list(now)
	}
	return m.flush(now)
}

// list starts an inventory, one at a time.
func (m *machine[D, A]) list(now time.Time) {
	if m.sweep.listing != 0 && now.Before(m.sweep.due) {
		m.sweep.repeat = true
		return
	}
	m.generation++
	m.sweep.listing, m.sweep.repeat, m.sweep.due = m.generation, false, now.Add(m.rules.Timeout+resultSlack)
	m.out.list = m.generation
}

// listed handles an inventory: it removes objects that are neither desired nor known. It uses the newest set, which may be
// newer than the inventory's start.
func (m *machine[D, A]) listed(now time.Time, generation uint64, found []string, err error) (out effects[D, A], news bool) {
	if generation != m.sweep.listing {
		m.counters.Stale++
		return m.flush(now), false
	}
	m.sweep.listing = 0
	text := ""
	if err != nil {
		text = err.Error()
	}
	news = text != "" && text != m.sweep.text
	m.sweep.text = text
	if err == nil && m.sweep.complete {
		spoken := map[string]bool{}
		for key := range m.sweep.desired {
			spoken[m.identity(key)] = true
		}
		for key := range m.objects {
			spoken[m.identity(key)] = true
		}
		for _, key := range found {
			if !spoken[m.identity(key)] {
				m.orphan(now, m.object(now, key))
			}
		}
	}
	if m.sweep.repeat {
		m.list(now)
	}
	return m.flush(now), news
}

func (m *machine[D, A]) orphan(now time.Time, o *object[D, A]) {
	m.counters.Orphans++
	m.unwant(now, o, false)
}

func (m *machine[D, A]) identity(key string) string {
	if m.rules.Identity == nil {
		return key
	}
	return m.rules.Identity(key)
}

func (m *machine[D, A]) keys() []string { return slices.Sorted(maps.Keys(m.objects)) }
