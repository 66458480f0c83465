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

// logState is the state of one container's log, as a look found it.
type logState struct {
	container
	size    int64 // in bytes; -1 if the file does not exist
	left    bool  // a crash left unfinished files
	problem error // the log cannot be read
}

// phase reports whether a look is in progress.
type phase string

const (
	resting phase = "resting"
	looking phase = "looking"
)

// schedule decides which logs are rotated, when looks take place, and how many rotations run at once. It is pure. All logs are
// checked regularly, since they grow. A pod's logs are also checked soon after its containers have changed.
type schedule struct {
	maxSize  int64 // in bytes; negative for no rotation
	workers  int
	interval time.Duration

	phase        phase
	pods         map[string][]container // by UID, as the runtime actor reported last
	checked      map[string]bool        // by container: it was checked for leftovers of a crash
	changes      map[string]string      // prefixes of links, by pod with changed containers since the last look began
	lastComplete time.Time              // when the last complete look began
	queue        []container
	active       map[string]bool   // by container
	problems     map[string]string // by container, the latest one logged
}

// soon is the delay between a change and its look, with less than 200 pods.
const soon = 200 * time.Millisecond

// gather returns the delay between a change and its look. It grows with the number of pods, because more of them change.
func (b *schedule) gather() time.Duration {
	return min(soon*time.Duration(max(len(b.pods)/100, 1)), b.interval)
}

type (
	effect any
	// look requests the state of logs, and the correction of their links.
	look struct {
		containers []container
		complete   bool            // these are all containers: any other link may be removed
		links      []string        // otherwise: the prefixes of links that may be removed
		firstLook  map[string]bool // by container: this is its first look
	}
	// lookAfter requests lookDue, and replaces a pending one.
	lookAfter struct{ after time.Duration }
	// maintenance requests the rotation or cleanup of one log.
	maintenance struct{ container }
	// warn requests a warning in the agent's log.
	warn struct {
		container
		problem error
	}
)

func newSchedule(maxSize int64, workers int, every time.Duration) *schedule {
	return &schedule{
		maxSize: maxSize, workers: max(workers, 1), interval: every, phase: resting, pods: map[string][]container{},
		changes: map[string]string{}, checked: map[string]bool{}, active: map[string]bool{}, problems: map[string]string{},
	}
}

// begin starts a look at the logs of changed pods, or at all logs if that is due. It does nothing while a look is in progress.
func (b *schedule) begin(now time.Time) []effect {
	if b.phase == looking {
		return nil
	}
	l := look{complete: b.due(now) <= 0, firstLook: map[string]bool{}}
	pods := slices.Sorted(maps.Keys(b.changes))
	if l.complete {
		b.lastComplete, pods = now, slices.Sorted(maps.Keys(b.pods))
	} else {
		l.links = slices.Sorted(maps.Values(b.changes))
	}
	for _, uid := range pods {
		l.containers = append(l.containers, b.pods[uid]...)
	}
	for _, c := range l.containers {
		if !b.checked[c.id] {
			l.firstLook[c.id] = true
		}
	}
	b.phase = looking
	clear(b.changes)
	return []effect{l}
}

// due returns the time until the next complete look.
func (b *schedule) due(now time.Time) time.Duration { return b.interval - now.Sub(b.lastComplete) }

// changed records the current containers of a pod.
func (b *schedule) changed(uid string, now []container) []effect {
	was := b.pods[uid]
	if slices.Equal(was, now) {
		return nil
	}
	b.pods[uid] = now
	if len(now) == 0 {
		delete(b.pods, uid)
	}
	planned := len(b.changes) > 0 || b.phase == looking // handleLook plans the next look
	b.changes[uid] = linkPrefix(slices.Concat(was, now)[0].link)
	for _, c := range was {
		if !slices.ContainsFunc(now, func(n container) bool { return n.id == c.id }) {
			delete(b.problems, c.id)
			delete(b.checked, c.id)
			b.queue = slices.DeleteFunc(b.queue, func(q container) bool { return q.id == c.id })
		}
	}
	if planned {
		return nil
	}
	return []effect{lookAfter{b.gather()}}
}

func (b *schedule) handleLook(found []logState, now time.Time) []effect {
	b.phase = resting
	next := max(b.due(now), b.gather()) // a pause even if a slow disk makes a look take the whole interval
	if len(b.changes) > 0 {
		next = b.gather()
	}
	out := []effect{lookAfter{next}}
	for _, s := range found {
		if !slices.ContainsFunc(b.pods[s.uid], func(c container) bool { return c.id == s.id }) {
			continue
		}
		b.checked[s.id] = true
		switch {
		case s.problem != nil:
			out = append(out, b.warn(s.container, s.problem)...)
		case b.active[s.id] || slices.ContainsFunc(b.queue, func(c container) bool { return c.id == s.id }):
		case s.left || b.maxSize >= 0 && s.running && (s.size < 0 || s.size >= b.maxSize):
			b.queue = append(b.queue, s.container)
		default:
			delete(b.problems, s.id) // the problem is gone
		}
	}
	return append(out, b.next()...)
}

func (b *schedule) handleMaintenance(c container, problem error) []effect {
	delete(b.active, c.id)
	var out []effect
	if problem != nil {
		out = b.warn(c, problem)
	} else {
		delete(b.problems, c.id)
	}
	return append(out, b.next()...)
}

// warn requests a warning unless it repeats the latest one.
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
		out = append(out, maintenance{c})
	}
	return out
}
