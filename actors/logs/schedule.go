package logs

import (
	"maps"
	"slices"
	"time"
)

// container is one container with a log, as the runtime lists it.
type container struct {
	id, uid string // the pod's
	running bool
	log     string // below the folder of all pods' logs
	link    string // its name among the links
}

// sight is what a look found of one container's log.
type sight struct {
	container
	size    int64 // in bytes; -1: it is not there
	left    bool  // a crash left unfinished files
	problem error // it cannot be looked at
}

// phase is what the schedule does about looking.
type phase string

const (
	resting phase = "resting"
	looking phase = "looking"
)

// schedule decides: which logs are looked at, which are rotated, when, and how many at once. It is pure. All logs are looked at
// from time to time, as they grow; what changes of a pod's containers has the logs of that pod looked at soon.
type schedule struct {
	maxSize int64 // in bytes; negative: nothing is rotated
	workers int
	every   time.Duration

	phase    phase
	pods     map[string][]container // by UID, as the runtime told last
	changes  map[string][]container // of the pods that changed since they were looked at: the containers before
	seen     map[string]bool        // by container: it was looked at for what a crash left
	allDue   bool                   // a look at all logs is to follow the one under way
	soonDue  bool                   // a look at the changes is to come: its timer runs, or will when a look is over
	queue    []container
	active   map[string]bool   // by container
	problems map[string]string // by container, as they were logged last
}

// soon is how long changes are gathered before they are looked at.
const soon = 200 * time.Millisecond

type (
	effect any
	// look asks for a sight of the logs of some containers, and for the links to be put right.
	look struct {
		containers []container
		fresh      map[string]bool // by container: it is looked at for the first time
		gone       []container     // containers that are gone; nil where all is looked at
		all        bool            // the containers are all that there are
	}
	// lookAfter asks for lookDue.
	lookAfter struct {
		after time.Duration
		all   bool
	}
	// tend asks for one log to be rotated, or tidied up.
	tend struct{ container }
	// warn is for the log of the agent.
	warn struct {
		container
		problem error
	}
)

func newSchedule(maxSize int64, workers int, every time.Duration) *schedule {
	return &schedule{
		maxSize: maxSize, workers: max(workers, 1), every: every, phase: resting, pods: map[string][]container{},
		changes: map[string][]container{}, seen: map[string]bool{}, active: map[string]bool{}, problems: map[string]string{},
	}
}

// begin looks at all logs.
func (b *schedule) begin() []effect {
	b.phase, b.allDue = looking, false
	clear(b.changes)
	l := look{all: true}
	for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
		l.containers = append(l.containers, b.pods[uid]...)
	}
	return []effect{b.marked(l)}
}

// marked marks those that are looked at for the first time.
func (b *schedule) marked(l look) look {
	l.fresh = map[string]bool{}
	for _, c := range l.containers {
		if !b.seen[c.id] {
			l.fresh[c.id] = true
		}
	}
	return l
}

// changed takes the containers that a pod has by now.
func (b *schedule) changed(uid string, now []container) []effect {
	was := b.pods[uid]
	if slices.Equal(was, now) {
		return nil
	}
	if _, known := b.changes[uid]; !known {
		b.changes[uid] = was
	}
	b.pods[uid] = now
	if len(now) == 0 {
		delete(b.pods, uid)
	}
	for _, c := range without(was, now) {
		delete(b.problems, c.id)
		delete(b.seen, c.id)
		b.queue = slices.DeleteFunc(b.queue, func(q container) bool { return q.id == c.id })
	}
	if b.soonDue {
		return nil
	}
	b.soonDue = true
	if b.phase == looking {
		return nil
	}
	return []effect{lookAfter{after: soon}}
}

// without are the containers that were and are not any more.
func without(was, now []container) (out []container) {
	for _, c := range was {
		if !slices.ContainsFunc(now, func(n container) bool { return n.id == c.id }) {
			out = append(out, c)
		}
	}
	return out
}

// due takes the end of a timer: it is time to look at all logs, or at the changes.
func (b *schedule) due(all bool) []effect {
	switch {
	case b.phase == looking:
		b.allDue = b.allDue || all
		return nil
	case all:
		return b.begin()
	}
	b.soonDue = false
	l := look{}
	for _, uid := range slices.Sorted(maps.Keys(b.changes)) {
		l.containers = append(l.containers, b.pods[uid]...)
		l.gone = append(l.gone, without(b.changes[uid], b.pods[uid])...)
	}
	clear(b.changes)
	if len(l.containers)+len(l.gone) == 0 {
		return nil
	}
	b.phase = looking
	return []effect{b.marked(l)}
}

// looked takes what was found.
func (b *schedule) looked(found []sight, all bool) []effect {
	b.phase = resting
	var out []effect
	if all {
		out = append(out, lookAfter{b.every, true})
	}
	for _, s := range found {
		if !slices.ContainsFunc(b.pods[s.uid], func(c container) bool { return c.id == s.id }) {
			continue
		}
		b.seen[s.id] = true
		switch {
		case s.problem != nil:
			out = append(out, b.warn(s.container, s.problem)...)
		case b.waits(s.id):
		case s.left || b.maxSize >= 0 && s.running && (s.size < 0 || s.size >= b.maxSize):
			b.queue = append(b.queue, s.container)
		default:
			delete(b.problems, s.id) // whatever it was, it is over
		}
	}
	out = append(out, b.next()...)
	switch {
	case b.allDue:
		out = append(out, b.begin()...)
	case b.soonDue:
		out = append(out, lookAfter{after: soon})
	}
	return out
}

func (b *schedule) waits(id string) bool {
	return b.active[id] || slices.ContainsFunc(b.queue, func(c container) bool { return c.id == id })
}

// tended takes the end of work on one log.
func (b *schedule) tended(c container, problem error) []effect {
	delete(b.active, c.id)
	var out []effect
	if problem != nil {
		out = b.warn(c, problem)
	} else {
		delete(b.problems, c.id)
	}
	return append(out, b.next()...)
}

// warn says what is new.
func (b *schedule) warn(c container, problem error) []effect {
	if b.problems[c.id] == problem.Error() {
		return nil
	}
	b.problems[c.id] = problem.Error()
	return []effect{warn{c, problem}}
}

func (b *schedule) next() []effect {
	var out []effect
	for len(b.active) < b.workers && len(b.queue) > 0 {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.active[c.id] = true
		out = append(out, tend{c})
	}
	return out
}
