package file

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// reader finds, reads and parses manifests. It belongs to one worker at a time, as that worker's memory from one piece
// of work to the next; its watch is safe for others.
type reader struct {
	opts   Options // Path is absolute and clean
	watch  *dirwatch.Watch
	memory *memory

	opened   bool
	loaded   bool                      // there was a checkpoint
	surveyed bool                      // the path was looked at
	heard    bool                      // what is wanted is known
	files    map[string]*entry         // by path, as the configured path has it
	holders  map[string]string         // the paths of the files that have a pod's name
	named    map[string]bool           // the UIDs of the pods that were in force at the last report
	departed base.Departures           // pods that left the manifests
	problem  *messages.ManifestProblem // with the path itself, in force
	missed   bool                      // the problem is that there is nothing at the path
	doubt    *trial                    // the path seems to be missing, or cannot be read, which is not believed yet

	last  looked          // as the actor knows it
	again time.Time       // when the actor wakes the reader
	dirty bool            // what is in force differs from what the actor was given to save
	notes []string        // for the log, not told yet
	said  map[string]bool // what the last survey complained of
}

// memory is what was in force last, for a restart of the actor before it is on disk.
type memory = atomic.Pointer[lastGood]

// looked is the one result of a worker that reads.
type looked struct {
	heard    bool      // false as long as it is not known what is wanted; then pods mean nothing
	pods     []*v1.Pod // immutable, as are the problems
	problems []messages.ManifestProblem
	unread   []string        // this, stale and gone: see messages.SourcePodsWanted
	stale    map[string]bool // immutable
	gone     map[string]bool // immutable
	changed  bool            // any of these differs from the result before
	checked  bool            // the regular check was done
	again    time.Time       // when the reader has to be woken; zero for never
	good     *lastGood       // to be saved; nil when it is as before
	notes    []string        // for the log
	at       time.Time
	files    int
}

func (l looked) worth() bool {
	return l.changed || l.checked || l.good != nil || len(l.notes) > 0 || !l.again.IsZero()
}

func newReader(o Options, m *memory) *reader {
	return &reader{opts: o, watch: dirwatch.New(), memory: m, files: map[string]*entry{}}
}

// next waits until there is something for the actor to know, and returns it; the first call returns after the first
// reading. When ctx ends, so does the actor, and nothing is returned.
func (r *reader) next(ctx context.Context) looked {
	if !r.opened {
		r.open()
		l := r.look(dirwatch.Changes{Lost: true})
		l.changed = true
		return l
	}
	for {
		if r.release() {
			if l := r.report(r.opts.Clock.Now(), false); l.worth() {
				return l
			}
		}
		c := r.watch.Await(ctx)
		supervisors.Awaited(ctx)
		if c.None() { // nobody waits for the result any more
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
	g := r.memory.Load()
	r.dirty = true
	if g == nil {
		var err error
		if g, err = load(r.opts.StateDir, r.opts.Path, r.opts.Node.NodeName); err != nil {
			r.notes = append(r.notes, err.Error())
		}
		if r.dirty = g == nil; g == nil {
			return
		}
	}
	r.loaded, r.holders = true, g.Holders
	r.departed.Add(r.opts.Clock.Now(), slices.Collect(maps.Keys(g.Gone))...)
	for _, s := range g.Manifests {
		r.files[s.Path] = &entry{path: s.Path, version: version{documents: s.Documents, count: s.Count}}
	}
	r.named = uidsOf(r.files)
}

// look takes in what changed and says what there is for the actor to know.
func (r *reader) look(c dirwatch.Changes) looked {
	now := r.opts.Clock.Now()
	if c.Late {
		r.again = time.Time{}
	}
	for name := range c.Deleted {
		if m := r.files[filepath.Join(r.opts.Path, name)]; m != nil {
			m.deleted = len(m.documents) > 0
		}
	}
	r.survey(now, c)
	return r.report(now, c.Check)
}

// report compares with what the actor knows.
func (r *reader) report(now time.Time, checked bool) looked {
	l := looked{heard: r.heard, checked: checked, at: now, notes: r.notes, files: len(r.files)}
	r.notes = nil
	var holders map[string]string
	l.pods, l.problems, holders = desired(r.files, r.holders)
	r.dirty = r.dirty || !maps.Equal(holders, r.holders)
	r.holders = holders
	l.unread, l.stale = unread(r.files)
	if r.problem != nil && !r.missed {
		l.unread = append(l.unread, r.opts.Path)
	}
	r.depart(now)
	l.gone = r.departed.UIDs()
	if r.problem != nil {
		kept := *r.problem
		kept.KeptLast = len(l.pods) > 0
		l.problems = slices.Insert(l.problems, 0, kept)
	}
	l.changed = l.heard != r.last.heard || !slices.Equal(l.pods, r.last.pods) || !slices.Equal(l.problems, r.last.problems) ||
		!slices.Equal(l.unread, r.last.unread) || !maps.Equal(l.stale, r.last.stale) || !maps.Equal(l.gone, r.last.gone)
	if due := r.due(); !due.IsZero() && (r.again.IsZero() || due.Before(r.again)) {
		l.again, r.again = due, due
	}
	if r.dirty && r.heard {
		good := collect(r.opts.Path, r.opts.Node.NodeName, r.files, r.holders, l.gone)
		r.memory.Store(good)
		r.dirty = false
		if r.opts.StateDir != "" {
			l.good = good
		}
	}
	r.last = l
	return l
}

// depart records the pods that left the manifests, and forgets those that are over.
func (r *reader) depart(now time.Time) {
	if !r.heard {
		return
	}
	named := uidsOf(r.files)
	changed := r.departed.Update(now, r.named, named)
	pruned := r.departed.Prune(now, r.opts.Board, messages.File)
	r.dirty, r.named = r.dirty || changed || pruned, named
}

// due is when something bad is to be believed first; zero when nothing is bad.
func (r *reader) due() (first time.Time) {
	switch {
	case r.doubt != nil:
		return r.doubt.due()
	case r.problem != nil:
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
