package file

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// reader finds, reads and parses manifests. It belongs to one worker at a time, as that worker's memory from one piece
// of work to the next; the actor calls the methods of its watch that may be called from anywhere.
type reader struct {
	path     string // absolute and clean; of a file or a folder
	node     string
	stateDir string // "" to keep nothing
	parse    Parse
	clock    clock.PassiveClock
	watch    *watch
	memory   *memory

	opened   bool
	loaded   bool              // there was a checkpoint
	surveyed bool              // the path was looked at
	heard    bool              // what is wanted is known
	dir      string            // the folder that path leads to, without links; "" when it leads to none
	files    map[string]*entry // by path, as the configured path has it
	place    place

	reported reported
	dirty    bool            // what is in force differs from what the actor was given to save
	notes    []string        // for the log, not told yet
	said     map[string]bool // what the last survey complained of
}

// reported is what the actor knows.
type reported struct {
	heard    bool
	pods     []*v1.Pod
	problems []messages.ManifestProblem
	again    time.Time
}

// looked is the one result of a worker that reads.
type looked struct {
	heard    bool      // false as long as it is not known what is wanted; then pods mean nothing
	pods     []*v1.Pod // immutable, as are the problems
	problems []messages.ManifestProblem
	changed  bool      // any of these differs from the result before
	checked  bool      // the regular check was done
	again    time.Time // when the reader has to be woken; zero for never
	good     *lastGood // to be saved; nil when it is as before
	notes    []string  // for the log
	at       time.Time
	files    int
}

func (l looked) worth() bool {
	return l.changed || l.checked || l.good != nil || len(l.notes) > 0 || !l.again.IsZero()
}

func newReader(o Options, m *memory) *reader {
	return &reader{
		path: o.Path, node: o.Node.NodeName, stateDir: o.StateDir, parse: o.Parse, clock: o.Clock,
		watch: newWatch(), memory: m, files: map[string]*entry{},
	}
}

// next waits until there is something for the actor to know, and returns it; the first call returns after the first
// reading. When ctx ends, so does the actor, and nothing is returned.
func (r *reader) next(ctx context.Context) looked {
	if !r.opened {
		r.open()
		l := r.look(changes{lost: true})
		l.changed = true
		return l
	}
	for {
		if r.release() {
			if l := r.report(r.clock.Now(), false); l.worth() {
				return l
			}
		}
		c := r.watch.await(ctx)
		supervisors.Awaited(ctx)
		if c.none() { // nobody waits for the result any more
			return looked{}
		}
		if l := r.look(c); l.worth() {
			return l
		}
	}
}

// release has what was left out once wanted again, and reports whether there was any. A manifest that was deleted and made anew
// ends its pod and begins it again, as with the kubelet, however little time lies between; one that was moved away does not.
func (r *reader) release() bool {
	released := false
	for _, m := range r.files {
		released = released || m.withheld
		m.withheld = false
	}
	return released
}

// open recalls what was in force.
func (r *reader) open() {
	r.opened = true
	g := r.memory.good()
	r.dirty = true
	if g == nil {
		var err error
		if g, err = load(r.stateDir, r.path, r.node); err != nil {
			r.notes = append(r.notes, err.Error())
		}
		r.dirty = g == nil
	}
	if g == nil {
		return
	}
	r.loaded = true
	for _, s := range g.Manifests {
		r.files[s.Path] = &entry{path: s.Path, documents: s.Documents, shape: s.Shape}
	}
}

// look takes in what changed and says what there is for the actor to know.
func (r *reader) look(c changes) looked {
	now := r.clock.Now()
	if c.late {
		r.reported.again = time.Time{}
	}
	for name := range c.deleted {
		if m := r.files[filepath.Join(r.path, name)]; m != nil {
			m.deleted = len(m.documents) > 0
		}
	}
	everything := c.lost || c.check || c.structure || r.dir == "" || r.place.due(now)
	if everything || !r.observeNames(c.names, now) {
		r.survey(now, c.lost || c.check)
	}
	if r.dir != "" && r.place.readable() {
		for path, m := range r.files {
			if m.overdue(now) {
				r.observe(path, r.sight(path, unwatched, nil), now, manner{})
			}
		}
	}
	return r.report(now, c.check)
}

func unwatched(string, string) {}

// observeNames looks at names in the manifest folder; false when one of them is a link, so that everything has to be
// found anew.
func (r *reader) observeNames(names map[string]bool, now time.Time) bool {
	for name, done := range names {
		path := filepath.Join(r.path, name)
		s := r.sight(path, nil, nil)
		if s.link {
			return false
		}
		r.observe(path, s, now, manner{event: true, done: done})
	}
	return true
}

// report compares with what the actor knows.
func (r *reader) report(now time.Time, checked bool) looked {
	l := looked{heard: r.heard, checked: checked, at: now, notes: r.notes, files: len(r.files)}
	r.notes = nil
	l.pods, l.problems = desired(r.files)
	if p := r.place.problem; p != nil {
		kept := *p
		kept.KeptLast = len(l.pods) > 0
		l.problems = slices.Insert(l.problems, 0, kept)
	}
	l.changed = l.heard != r.reported.heard || !slices.Equal(l.pods, r.reported.pods) ||
		!slices.Equal(l.problems, r.reported.problems)
	if due := r.due(); !due.IsZero() && (r.reported.again.IsZero() || due.Before(r.reported.again)) {
		l.again, r.reported.again = due, due
	}
	r.reported.heard, r.reported.pods, r.reported.problems = l.heard, l.pods, l.problems
	if r.dirty && r.heard {
		good := collect(r.path, r.node, r.files)
		r.memory.keep(good)
		r.dirty = false
		if r.stateDir != "" {
			l.good = good
		}
	}
	return l
}

// due is when something bad is to be believed first; zero when nothing is bad.
func (r *reader) due() time.Time {
	if r.place.trial != nil {
		return r.place.trial.due()
	}
	var first time.Time
	if !r.place.readable() {
		return first
	}
	for _, m := range r.files {
		if m.trial == nil {
			continue
		}
		if due := m.trial.due(); first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}
