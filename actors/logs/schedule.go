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
// looked at from time to time, as they grow, and those of a pod soon after its containers have changed.
type schedule struct {
	maxSize int64 // in bytes; negative: nothing is rotated
	workers int
	every   time.Duration

	phase    phase
	pods     map[string][]container // by UID, as the runtime told last
	seen     map[string]bool        // by container: it was looked at for what a crash left
	changes  map[string]string      // by pod whose containers changed since the last look began: how its links begin
	whole    time.Time              // when the last look at all logs began
	queue    []container
	active   map[string]bool   // by container
	problems map[string]string // by container, as they were logged last
}

// soon is how long changes are gathered before they are looked at, with less than 200 pods.
const soon = 200 * time.Millisecond

// gather is that time: the more pods there are, the more of them change.
func (b *schedule) gather() time.Duration {
	return min(soon*time.Duration(max(len(b.pods)/100, 1)), b.every)
}

type (
	effect any
	// look asks for a sight of logs, and for their links to be put right.
	look struct {
		containers []container
		whole      bool            // these are all that there are: every other link goes with its log
		links      []string        // else: how the links begin that may go with theirs
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
		changes: map[string]string{}, seen: map[string]bool{}, active: map[string]bool{}, problems: map[string]string{},
	}
}

// begin looks at the logs of pods that changed, or at all when that is due, unless a look is under way.
func (b *schedule) begin(now time.Time) []effect {
	if b.phase == looking {
		return nil
	}
	l := look{whole: b.due(now) <= 0, fresh: map[string]bool{}}
	pods := slices.Sorted(maps.Keys(b.changes))
	if l.whole {
		b.whole, pods = now, slices.Sorted(maps.Keys(b.pods))
	} else {
		l.links = slices.Sorted(maps.Values(b.changes))
	}
	for _, uid := range pods {
		l.containers = append(l.containers, b.pods[uid]...)
	}
	for _, c := range l.containers {
		if !b.seen[c.id] {
			l.fresh[c.id] = true
		}
	}
	b.phase = looking
	clear(b.changes)
	return []effect{l}
}

// due is how long it is until all logs are to be looked at.
func (b *schedule) due(now time.Time) time.Duration { return b.every - now.Sub(b.whole) }

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
	planned := len(b.changes) > 0 || b.phase == looking // when the look is over
	b.changes[uid] = linkPrefix(slices.Concat(was, now)[0].link)
	for _, c := range was {
		if !slices.ContainsFunc(now, func(n container) bool { return n.id == c.id }) {
			delete(b.problems, c.id)
			delete(b.seen, c.id)
			b.queue = slices.DeleteFunc(b.queue, func(q container) bool { return q.id == c.id })
		}
	}
	if planned {
		return nil
	}
	return []effect{lookAfter{b.gather()}}
}

func (b *schedule) looked(found []sight, now time.Time) []effect {
	b.phase = resting
	next := max(b.due(now), b.gather()) // a disk so slow that a look takes as long has a rest
	if len(b.changes) > 0 {
		next = b.gather()
	}
	out := []effect{lookAfter{next}}
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
