package file

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/messages"
)

// The delays before a bad state is accepted. A good state is accepted at once.
const (
	// waitBroken is for a manifest that cannot be read or parsed: some tools write a file in several steps.
	waitBroken = 300 * time.Millisecond
	// waitGone is for a missing file: some editors move the old file away before they write the new one.
	waitGone = 500 * time.Millisecond
	// waitPlace is for a missing folder: replacing one by a link takes more than one step.
	waitPlace = 2 * time.Second
	// quietWhileWritten is for a file that a writer holds open without writing to it.
	quietWhileWritten = wholefile.Quiet
	// waitAtMost is for a file that is bad in a different way each time.
	waitAtMost = 10 * time.Second
)

// document is one pod of a manifest.
type document struct {
	Pod *v1.Pod `json:"pod"`
	// Index is the position of the document in its manifest, from 0; -1 if unknown.
	Index int `json:"index"`
}

// problem is a problem of a manifest, with the position of its document from 0; -1 if unknown.
type problem struct {
	messages.ManifestProblem
	document int
}

// version is the content of a manifest: as read, or as in force. Replaced as a whole, never changed in place.
type version struct {
	documents []document
	problems  []problem
	count     int // of documents, including those with problems
}

// faulty reports whether a part of it is unusable.
func (v version) faulty() bool {
	return slices.ContainsFunc(v.problems, func(p problem) bool { return !p.Warning })
}

func (v version) equal(o version) bool {
	return slices.Equal(v.documents, o.documents) && slices.Equal(v.problems, o.problems)
}

// fileState is the state of a manifest after a read.
type fileState int

const (
	fileGood    fileState = iota
	fileInvalid           // it cannot be read, or parts of it are invalid
	fileBusy              // a writer has it open
	fileMissing           // it is missing
)

// outcome is the result of reading a manifest.
type outcome struct {
	state fileState
	version
}

// pendingState is a bad state that is not accepted yet.
type pendingState struct {
	state   fileState
	wait    time.Duration
	since   time.Time // when the state became bad
	changed time.Time // when the bad state last changed
}

var waits = map[fileState]time.Duration{fileInvalid: waitBroken, fileBusy: quietWhileWritten, fileMissing: waitGone}

// due returns the time at which the state is accepted.
func (t *pendingState) due() time.Time {
	due, last := t.changed.Add(t.wait), t.since.Add(waitAtMost)
	if last.Before(due) && t.state != fileMissing { // only its absence ends its pods, not an earlier problem of the file
		return last
	}
	return due
}

// entry is one file of manifests: the version in force, and the state of the file.
type entry struct {
	path    string
	version // in force
	// confirmed is the accepted bad version.
	confirmed *version

	pending *pendingState

	// accepted means that a version has been read and accepted since the agent started.
	accepted bool

	// deleted means that the file was deleted and has not come back. withheld means that it came back: its pods are left out
	// once.
	deleted, withheld bool

	device uint64 // of the folder in which the file was last found; 0: unknown

	id   wholefile.Identity
	sum  [32]byte
	last *version // the version read from the content with that sum
}

// overdue reports whether m has been bad for long enough to accept the next bad result.
func (m *entry) overdue(now time.Time) bool { return m.pending != nil && !now.Before(m.pending.due()) }

// apply applies an outcome: a good one at once, a bad one when it has lasted long enough. touched means that the file differs
// from the previous look. changed means that the version in force may differ; removed, that the manifest must be dropped.
func (m *entry) apply(o outcome, now time.Time, touched bool) (changed, removed bool) {
	switch {
	case o.state == fileGood:
		m.pending, m.confirmed, m.withheld, m.deleted = nil, nil, m.withheld || m.deleted, false
		return m.put(o.version), false
	case o.state == fileMissing && len(m.documents) == 0 && len(m.problems) == 0:
		return false, true
	case o.state == fileInvalid && m.confirmed != nil && m.confirmed.equal(o.version):
		m.pending = nil
		return false, false
	case m.pending == nil:
		m.pending = &pendingState{state: o.state, wait: waits[o.state], since: now, changed: now}
	case m.pending.state != o.state, touched:
		m.pending.state, m.pending.wait, m.pending.changed = o.state, waits[o.state], now
	}
	switch {
	case !m.overdue(now), o.state == fileBusy: // the caller did not insist, and looks again
		return false, false
	case o.state == fileMissing:
		return false, true
	}
	m.pending, m.confirmed = nil, &o.version
	return m.put(retain(m.version, o.version)), false
}

func (m *entry) put(v version) (changed bool) {
	changed = !m.equal(v)
	m.version, m.accepted = v, true
	return changed
}
