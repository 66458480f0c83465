package file

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/messages"
)

// How long something bad must stay as it is before it is believed. What is good is believed at once.
const (
	// waitBroken is for a manifest that cannot be read or parsed: some tools write a file in several steps.
	waitBroken = 300 * time.Millisecond
	// waitGone is for a file that is not there: some editors move the old file away before they write the new one.
	waitGone = 500 * time.Millisecond
	// waitPlace is for a folder that is not there: one cannot be replaced by a link in a single step.
	waitPlace = 2 * time.Second
	// quietWhileWritten is for a file that a writer holds open but does not write to.
	quietWhileWritten = wholefile.Quiet
	// waitAtMost is for one that is bad in another way each time.
	waitAtMost = 10 * time.Second
)

// document is one pod of a manifest.
type document struct {
	Pod *v1.Pod `json:"pod"`
	// Index is which of the manifest's documents named it, from 0; -1 when that is not known.
	Index int `json:"index"`
}

// problem is one of a manifest, and of which of its documents, from 0; -1 when that is not known.
type problem struct {
	messages.ManifestProblem
	document int
}

// version is what was read from a manifest, or what of it is in force. Replaced as a whole, never changed in place.
type version struct {
	documents []document
	problems  []problem
	count     int // of documents, those with problems among them
}

// faulty reports whether a part of it cannot be used.
func (v version) faulty() bool {
	return slices.ContainsFunc(v.problems, func(p problem) bool { return !p.Warning })
}

func (v version) equal(o version) bool {
	return slices.Equal(v.documents, o.documents) && slices.Equal(v.problems, o.problems)
}

// grade is how a look at a manifest went.
type grade int

const (
	good   grade = iota
	broken       // it cannot be read, or parts of it are wrong
	busy         // somebody is writing it
	gone         // it is not there
)

// outcome is what a look at a manifest found.
type outcome struct {
	grade grade
	version
}

// trial is something bad that is not believed yet.
type trial struct {
	grade   grade
	wait    time.Duration
	since   time.Time // when it began to be bad
	changed time.Time // when it last became bad in another way
}

var waits = map[grade]time.Duration{broken: waitBroken, busy: quietWhileWritten, gone: waitGone}

// due is when it is believed.
func (t *trial) due() time.Time {
	due, last := t.changed.Add(t.wait), t.since.Add(waitAtMost)
	if last.Before(due) && t.grade != gone { // its pods end by its absence alone, not by what was wrong with the file before
		return last
	}
	return due
}

// entry is one file of manifests: what of it is in force, and what is known of the file.
type entry struct {
	path    string
	version // in force
	// confirmed is the bad version that is believed.
	confirmed *version

	trial *trial

	// settled means that a version has been read and accepted since the agent started.
	settled bool

	// deleted means that the file was deleted and has not come back; withheld, that it has, and its pods are left out once.
	deleted, withheld bool

	id   wholefile.Identity
	sum  [32]byte
	last *version // what was read of the content that has that sum
}

// overdue says whether m has been bad for long enough, so that what is found now is believed.
func (m *entry) overdue(now time.Time) bool { return m.trial != nil && !now.Before(m.trial.due()) }

// apply takes an outcome in at now: at once when it is good, else when it has stayed bad long enough. touched says that
// the file is not the same as at the look before. What is in force may have changed, or the manifest is to be forgotten.
func (m *entry) apply(o outcome, now time.Time, touched bool) (changed, removed bool) {
	switch {
	case o.grade == good:
		m.trial, m.confirmed, m.withheld, m.deleted = nil, nil, m.withheld || m.deleted, false
		return m.put(o.version), false
	case o.grade == gone && len(m.documents) == 0 && len(m.problems) == 0:
		return false, true
	case o.grade == broken && m.confirmed != nil && m.confirmed.equal(o.version):
		m.trial = nil
		return false, false
	case m.trial == nil:
		m.trial = &trial{grade: o.grade, wait: waits[o.grade], since: now, changed: now}
	case m.trial.grade != o.grade, touched:
		m.trial.grade, m.trial.wait, m.trial.changed = o.grade, waits[o.grade], now
	}
	switch {
	case !m.overdue(now), o.grade == busy: // who asked did not insist, and asks again
		return false, false
	case o.grade == gone:
		return false, true
	}
	m.trial, m.confirmed = nil, &o.version
	return m.put(retain(m.version, o.version)), false
}

func (m *entry) put(v version) (changed bool) {
	changed = !m.equal(v)
	m.version, m.settled = v, true
	return changed
}
