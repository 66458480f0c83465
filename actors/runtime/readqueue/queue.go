// Package readqueue schedules the readings of pods.
package readqueue

import (
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// PodListing is one pod's part of an audit's lists. A reading that starts with it needs no lists of its own.
type PodListing struct {
	facts.Listing
	Sig    uint64 // of the pod's listed objects
	ReadAt time.Time
}

// readState is the state of a pod's reading.
type readState int

const (
	inLine   readState = iota
	reading            // in progress
	sharing            // waits for an audit's lists, which many pods share
	settling           // waits for the end of the pod's own start operations
	resting            // failed; waits before the retry
)

// podRead is a requested reading of one pod.
type podRead struct {
	state    readState
	repeat   bool // requested during a reading: read once more afterwards
	failures int
	from     *PodListing // nil: the reading makes its own lists
	alone    bool        // no audit could serve it
	audit    uint64      // the first audit that serves it, while it is sharing
	began    time.Time   // start of the reading
}

// Queue is pure. Each pod has one reading at a time. Any number of requests during a reading cause one more. Requests are kept
// while the queue is not open. It is not safe for concurrent use.
type Queue struct {
	Open bool

	limit   int
	running int
	pods    map[string]*podRead
	waiting []string
	held    map[string]bool
}

// New returns a queue with this limit of concurrent readings.
func New(limit int) *Queue {
	return &Queue{limit: limit, pods: map[string]*podRead{}, held: map[string]bool{}}
}

// Ask requests a reading of the pod from lists made from now on.
func (q *Queue) Ask(uid string) { q.want(uid, nil) }

// AskFrom requests a reading of the pod from the audit's lists, unless Ask is called for it before its turn.
func (q *Queue) AskFrom(uid string, l *PodListing) { q.want(uid, l) }

func (q *Queue) want(uid string, l *PodListing) {
	w := q.pods[uid]
	if w == nil {
		q.pods[uid] = &podRead{from: l}
		q.waiting = append(q.waiting, uid)
		return
	}
	switch w.state {
	case reading:
		if l == nil || w.stale(l) {
			w.repeat = true
		}
	case inLine:
		if l == nil || w.from != nil {
			w.from = l
		}
	case sharing:
		w.repeat = w.repeat || l == nil // the audit may be in progress
	case settling, resting: // it will make its own, later lists
	}
}

// stale reports whether an audit has seen a change that the reading in progress may miss.
func (w *podRead) stale(l *PodListing) bool {
	if w.from != nil {
		return w.from.Sig != l.Sig
	}
	return l.ReadAt.After(w.began)
}

// Pending reports whether a reading of the pod is queued or in progress.
func (q *Queue) Pending(uid string) bool { return q.pods[uid] != nil }

// Next starts the next reading and returns its pod.
func (q *Queue) Next(now time.Time) (uid string, from *PodListing, ok bool) {
	if !q.Open || q.running >= q.limit {
		return "", nil, false
	}
	i := slices.IndexFunc(q.waiting, func(uid string) bool { return !q.held[uid] })
	if i < 0 {
		return "", nil, false
	}
	uid = q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	w := q.pods[uid]
	w.state, w.began = reading, now
	q.running++
	return uid, w.from, true
}

// Share makes queued readings that need their own lists wait for an audit, if there are more than the limit. It reports whether
// any wait.
func (q *Queue) Share(above int, audit uint64) bool {
	mayShare := func(uid string) bool { w := q.pods[uid]; return w.from == nil && !w.alone && !q.held[uid] }
	n := 0
	for _, uid := range q.waiting {
		if mayShare(uid) {
			n++
		}
	}
	if !q.Open || n <= above {
		return false
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(uid string) bool {
		if !mayShare(uid) {
			return false
		}
		q.pods[uid].state, q.pods[uid].audit = sharing, audit
		return true
	})
	return true
}

// Shared ends the wait for an audit. from returns a pod's part of its lists; nil if there is no reliable one.
func (q *Queue) Shared(audit uint64, from func(uid string) *PodListing) {
	for _, uid := range slices.Sorted(maps.Keys(q.pods)) {
		if w := q.pods[uid]; w.state == sharing && w.audit <= audit {
			l := from(uid)
			q.rejoin(uid, &podRead{failures: w.failures, repeat: w.repeat, from: l, alone: l == nil})
		}
	}
}

// Done ends a successful reading.
func (q *Queue) Done(uid string) {
	w := q.leave(uid)
	if w.repeat {
		q.rejoin(uid, &podRead{})
		return
	}
	delete(q.pods, uid)
}

// Busy ends a reading that must wait for the pod's own start operations; Settled follows.
func (q *Queue) Busy(uid string) {
	q.leave(uid)
	q.pods[uid] = &podRead{state: settling}
}

// Failed ends a failed reading and returns the rest before its retry; Rested follows.
func (q *Queue) Failed(uid string) time.Duration {
	w := q.leave(uid)
	q.pods[uid] = &podRead{state: resting, failures: w.failures + 1}
	return readRetry.After(w.failures+1, 0)
}

// readRetry is the rest after a failed reading.
var readRetry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

// Settled ends the wait for the pod's own start operations.
func (q *Queue) Settled(uid string) { q.back(uid, settling) }

// Rested ends the rest after a failure.
func (q *Queue) Rested(uid string) { q.back(uid, resting) }

func (q *Queue) back(uid string, from readState) {
	if w := q.pods[uid]; w != nil && w.state == from {
		q.rejoin(uid, &podRead{failures: w.failures})
	}
}

// Rouse ends all rests, because a retry may succeed now.
func (q *Queue) Rouse() {
	for uid := range q.pods {
		q.Rested(uid)
	}
}

// Hold keeps the pod from being read until Release.
func (q *Queue) Hold(uid string) { q.held[uid] = true }

// Release undoes Hold.
func (q *Queue) Release(uid string) { delete(q.held, uid) }

func (q *Queue) leave(uid string) *podRead {
	q.running--
	return q.pods[uid]
}

func (q *Queue) rejoin(uid string, w *podRead) {
	q.pods[uid] = w
	q.waiting = append(q.waiting, uid)
}

// Counts returns the numbers of pods to read, of those being read, and of those resting after a failure.
func (q *Queue) Counts() (all, beingRead, rest int) {
	for _, w := range q.pods {
		if w.state == resting {
			rest++
		}
	}
	return len(q.pods), q.running, rest
}
