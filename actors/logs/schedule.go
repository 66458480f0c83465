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

// schedule decides: which logs are rotated, when they are looked at, and how many are worked on at once. It is pure. All logs are
// looked at from time to time, as they grow, and soon after containers have changed.
type schedule struct {
	maxSize int64 // in bytes; negative: nothing is rotated
	workers int
	every   time.Duration

	phase    phase
	pods     map[string][]container // by UID, as the runtime told last
	seen     map[string]bool        // by container: it was looked at for what a crash left
	changes  bool                   // containers changed since the last look began
	queue    []container
	active   map[string]bool   // by container
	problems map[string]string // by container, as they were logged last
}

// soon is how long changes are gathered before they are looked at, with less than 200 pods.
const soon = 200 * time.Millisecond

// gather is that time: a look costs the more the more pods there are, and so do their changes.
func (b *schedule) gather() time.Duration {
	return min(soon*time.Duration(max(len(b.pods)/100, 1)), b.every)
}

type (
	effect any
	// look asks for a sight of all logs, and for the links to be put right.
	look struct {
		containers []container
		fresh      map[string]bool // by container: it is looked at for the first time
	}
	// lookAfter asks for lookDue, in place of any that is to come.
	lookAfter struct{ after time.Duration }
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
		seen: map[string]bool{}, active: map[string]bool{}, problems: map[string]string{},
	}
}

// begin looks at all logs, unless that is under way.
func (b *schedule) begin() []effect {
	if b.phase == looking {
		return nil
	}
	b.phase, b.changes = looking, false
	l := look{fresh: map[string]bool{}}
	for _, uid := range slices.Sorted(maps.Keys(b.pods)) {
		l.containers = append(l.containers, b.pods[uid]...)
	}
	for _, c := range l.containers {
		if !b.seen[c.id] {
			l.fresh[c.id] = true
		}
	}
	return []effect{l}
}

// changed takes the containers that a pod has by now.
func (b *schedule) changed(uid string, now []container) []effect {
	was := b.pods[uid]
	if slices.Equal(was, now) {
		return nil
	}
	b.pods[uid] = now
	if len(now) == 0 {
		delete(b.pods, uid)
	}
	for _, c := range was {
		if !slices.ContainsFunc(now, func(n container) bool { return n.id == c.id }) {
			delete(b.problems, c.id)
			delete(b.seen, c.id)
			b.queue = slices.DeleteFunc(b.queue, func(q container) bool { return q.id == c.id })
		}
	}
	planned := b.changes || b.phase == looking // when the look is over
	if b.changes = true; planned {
		return nil
	}
	return []effect{lookAfter{b.gather()}}
}

func (b *schedule) looked(found []sight) []effect {
	b.phase = resting
	out := []effect{lookAfter{b.every}}
	if b.changes {
		out = []effect{lookAfter{b.gather()}}
	}
	for _, s := range found {
		if !slices.ContainsFunc(b.pods[s.uid], func(c container) bool { return c.id == s.id }) {
			continue
		}
		b.seen[s.id] = true
		switch {
		case s.problem != nil:
			out = append(out, b.warn(s.container, s.problem)...)
		case b.active[s.id] || slices.ContainsFunc(b.queue, func(c container) bool { return c.id == s.id }):
		case s.left || b.maxSize >= 0 && s.running && (s.size < 0 || s.size >= b.maxSize):
			b.queue = append(b.queue, s.container)
		default:
			delete(b.problems, s.id) // whatever it was, it is over
		}
	}
	return append(out, b.next()...)
}

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
