package file

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/dirwatch"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// reader finds, reads and parses manifests. It belongs to one worker at a time, and keeps its state between their runs. Its
// watch is safe for concurrent use.
type reader struct {
	opts   Options // Path is absolute and clean
	watch  *dirwatch.Watch
	memory *memory

	opened    bool
	loaded    bool                      // a checkpoint was loaded
	folder    uint64                    // the device of the folder of the path, when the path was last there; 0: unknown
	surveyed  bool                      // the path was examined
	podsKnown bool                      // the desired pods are known
	files     map[string]*entry         // by path, as the configured path has it
	holders   map[string]string         // the paths of the files that have a pod's name
	named     map[string]bool           // the UIDs of the pods that were in force at the last report
	departed  base.Departures           // pods that left the manifests
	problem   *messages.ManifestProblem // with the path itself, in force
	current   bool                      // the versions in force were read since the boot
	missed    bool                      // the problem is that the path does not exist
	away      []string                  // the manifests on a file system that is not mounted there
	pending   *pendingState             // the path is missing or unreadable, which is not accepted yet

	last   readResult      // as the actor knows it
	wakeAt time.Time       // when the actor wakes the reader
	dirty  bool            // the versions in force differ from the last ones to save
	notes  []string        // for the log, not returned yet
	logged map[string]bool // the complaints of the last survey
}

// memory holds the last versions in force, for a restart of the actor before they are on disk.
type memory = atomic.Pointer[lastGood]

// readResult is the result of a worker.
type readResult struct {
	podsKnown bool      // false while the desired pods are unknown; pods is meaningless then
	pods      []*v1.Pod // immutable, as are the problems
	problems  []messages.ManifestProblem
	unread    []string // this, names, stale and gone: see messages.SourcePodsWanted
	names     map[string][]string
	stale     map[string]bool // immutable
	manifests map[string]string
	gone      map[string]bool // immutable
	changed   bool            // any of these differs from the previous result
	checked   bool            // the regular check is done
	wakeAt    time.Time       // when to wake the reader; zero for never
	good      *lastGood       // to be saved; nil if unchanged
	notes     []string        // for the log
	at        time.Time
	files     int
}

func (l readResult) notable() bool {
	return l.changed || l.checked || l.good != nil || len(l.notes) > 0 || !l.wakeAt.IsZero()
}

func newReader(o Options, m *memory) *reader {
	return &reader{opts: o, watch: dirwatch.New(), memory: m, files: map[string]*entry{}}
}

// next blocks until there is a result for the actor. The first call returns after the first reading. The end of ctx is the
// end of the actor: the result is empty.
func (r *reader) next(ctx context.Context) readResult {
	if !r.opened {
		r.open()
		l := r.look(dirwatch.Changes{Lost: true})
		l.changed = true
		return l
	}
	for {
		if r.release() {
			if l := r.report(r.opts.Clock.Now(), false); l.notable() {
				return l
			}
		}
		c := r.watch.Await(ctx)
		supervisors.Awaited(ctx)
		if c.None() { // the actor has ended
			return readResult{}
		}
		if l := r.look(c); l.notable() {
			return l
		}
	}
}

// release restores the pods that were left out once, and reports whether there were any. A manifest that was deleted and
// created again restarts its pod, as with the kubelet, however short the interval. So does one that was moved to another folder
// and back: kubeadm restarts etcd so, for its new certificates. One that was renamed in its folder does not: editors do that.
func (r *reader) release() bool {
	released := false
	for _, m := range r.files {
		released = released || m.withheld
		m.withheld = false
	}
	return released
}

// open restores the last versions in force.
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
	r.current = g.Boot != "" && g.Boot == bootID()
	for _, s := range g.Manifests {
		m := &entry{path: s.Path, version: version{documents: s.Documents, count: s.Count}}
		if r.current {
			m.device = s.Device
		}
		r.files[s.Path] = m
	}
	r.named = uidsOf(r.files)
}

// look processes changes and returns the result for the actor.
func (r *reader) look(c dirwatch.Changes) readResult {
	now := r.opts.Clock.Now()
	if c.Late {
		r.wakeAt = time.Time{}
	}
	for name := range c.Deleted {
		if m := r.files[filepath.Join(r.opts.Path, name)]; m != nil {
			m.deleted = len(m.documents) > 0
		}
	}
	r.survey(now, c)
	return r.report(now, c.Check)
}

// report compares the state with the last result.
func (r *reader) report(now time.Time, checked bool) readResult {
	l := readResult{podsKnown: r.podsKnown, checked: checked, at: now, notes: r.notes, files: len(r.files)}
	r.notes = nil
	var holders map[string]string
	l.pods, l.problems, holders = desired(r.files, r.holders)
	r.dirty = r.dirty || !maps.Equal(holders, r.holders)
	r.holders, l.manifests = holders, holders
	l.unread, l.stale = unread(r.files)
	l.names = namesOf(r.files, l.unread, r.opts.Node.NodeName)
	if r.problem != nil && !r.missed {
		l.unread = append(l.unread, r.opts.Path)
	}
	if len(r.away) > 0 {
		l.unread = append(l.unread, r.opts.Path)
		slices.Sort(r.away)
		l.problems = slices.Insert(l.problems, 0, messages.ManifestProblem{Path: r.opts.Path, KeptLast: true, Message: "another" +
			" file system is mounted there than before, without " + strings.Join(r.away, ", ") + ": mount the earlier one; or, " +
			"to end the pods, make these files and remove them again"})
	}
	r.depart(now)
	l.gone = r.departed.UIDs()
	if r.problem != nil {
		kept := *r.problem
		kept.KeptLast = len(l.pods) > 0
		l.problems = slices.Insert(l.problems, 0, kept)
	}
	l.changed = l.podsKnown != r.last.podsKnown || !slices.Equal(l.pods, r.last.pods) ||
		!slices.Equal(l.problems, r.last.problems) ||
		!slices.Equal(l.unread, r.last.unread) || !maps.EqualFunc(l.names, r.last.names, slices.Equal) ||
		!maps.Equal(l.manifests, r.last.manifests) || !maps.Equal(l.stale, r.last.stale) || !maps.Equal(l.gone, r.last.gone)
	if due := r.due(); !due.IsZero() && (r.wakeAt.IsZero() || due.Before(r.wakeAt)) {
		l.wakeAt, r.wakeAt = due, due
	}
	if r.dirty && r.podsKnown {
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

// depart records the pods that left the manifests, and drops those that have ended.
func (r *reader) depart(now time.Time) {
	if !r.podsKnown {
		return
	}
	named := uidsOf(r.files)
	changed := r.departed.Update(now, r.named, named)
	pruned := r.departed.Prune(now, r.opts.Board, messages.File)
	r.dirty, r.named = r.dirty || changed || pruned, named
}

// due returns the earliest time at which a bad state is accepted; zero if there is none.
func (r *reader) due() (first time.Time) {
	switch {
	case r.pending != nil:
		return r.pending.due()
	case r.problem != nil:
		return first
	}
	for _, m := range r.files {
		if m.pending == nil {
			continue
		}
		if due := m.pending.due(); first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}
