package runtime

import (
	"maps"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// listed is one pod's part of an audit's lists: a reading that begins with it needs no lists of its own.
type listed struct {
	facts.Listing
	sig    uint64
	readAt time.Time
}

// readState is where the reading of a pod is.
type readState int

const (
	inLine   readState = iota
	reading            // under way
	sharing            // waits for the lists of an audit, which serve many at once
	settling           // waits for the end of the pod's own start operations
	resting            // failed; waits before it is tried again
)

// wantedRead is one pod that is to be read.
type wantedRead struct {
	state    readState
	again    bool // asked for while under way: once more after it
	failures int
	from     *listed   // nil: it makes its own lists
	alone    bool      // no audit could serve it
	audit    uint64    // the first audit that serves it, while it is sharing
	began    time.Time // when it began to be read
}

// readQueue decides which pod is read when. It is pure. Each pod is read by one reading at a time, and however often a
// reading is asked for while one is under way, one follows. While it is closed, what is asked for is kept.
type readQueue struct {
	limit   int
	running int
	open    bool
	pods    map[string]*wantedRead
	line    []string
	held    map[string]bool
}

func newReadQueue(limit int) *readQueue {
	return &readQueue{limit: limit, pods: map[string]*wantedRead{}, held: map[string]bool{}}
}

// ask wants the pod to be read from lists made from now on.
func (q *readQueue) ask(uid string) { q.want(uid, nil) }

// askFrom wants the pod to be read, from the audit's lists if nobody asks for newer ones before its turn comes.
func (q *readQueue) askFrom(uid string, l *listed) { q.want(uid, l) }

func (q *readQueue) want(uid string, l *listed) {
	w := q.pods[uid]
	if w == nil {
		q.pods[uid] = &wantedRead{from: l}
		q.line = append(q.line, uid)
		return
	}
	switch w.state {
	case reading:
		if l == nil || w.stale(l) {
			w.again = true
		}
	case inLine:
		if l == nil || w.from != nil {
			w.from = l
		}
	case sharing:
		w.again = w.again || l == nil // the audit may be under way
	case settling, resting: // it will make its own lists, later than these
	}
}

// stale says that an audit has seen something that the reading under way may not show.
func (w *wantedRead) stale(l *listed) bool {
	if w.from != nil {
		return w.from.sig != l.sig
	}
	return l.readAt.After(w.began)
}

// pending says that a reading of the pod is to come or under way.
func (q *readQueue) pending(uid string) bool { return q.pods[uid] != nil }

// next begins the reading of the pod whose turn it is.
func (q *readQueue) next(now time.Time) (uid string, from *listed, ok bool) {
	if !q.open || q.running >= q.limit {
		return "", nil, false
	}
	i := slices.IndexFunc(q.line, func(uid string) bool { return !q.held[uid] })
	if i < 0 {
		return "", nil, false
	}
	uid = q.line[i]
	q.line = slices.Delete(q.line, i, i+1)
	w := q.pods[uid]
	w.state, w.began = reading, now
	q.running++
	return uid, w.from, true
}

// share has those in line that would make their own lists wait for an audit, where they are more than so many. It says
// whether there are any.
func (q *readQueue) share(above int, audit uint64) bool {
	mayShare := func(uid string) bool { w := q.pods[uid]; return w.from == nil && !w.alone && !q.held[uid] }
	n := 0
	for _, uid := range q.line {
		if mayShare(uid) {
			n++
		}
	}
	if !q.open || n <= above {
		return false
	}
	q.line = slices.DeleteFunc(q.line, func(uid string) bool {
		if !mayShare(uid) {
			return false
		}
		q.pods[uid].state, q.pods[uid].audit = sharing, audit
		return true
	})
	return true
}

// shared ends the wait for an audit: from gives each pod's part of its lists, and nil where it has none to rely on.
func (q *readQueue) shared(audit uint64, from func(uid string) *listed) {
	for _, uid := range slices.Sorted(maps.Keys(q.pods)) {
		if w := q.pods[uid]; w.state == sharing && w.audit <= audit {
			l := from(uid)
			q.rejoin(uid, &wantedRead{failures: w.failures, again: w.again, from: l, alone: l == nil})
		}
	}
}

// done ends a reading that succeeded.
func (q *readQueue) done(uid string) {
	w := q.leave(uid)
	if w.again {
		q.rejoin(uid, &wantedRead{})
		return
	}
	delete(q.pods, uid)
}

// busy ends a reading that must wait until the pod's own start operations are over: then comes settled.
func (q *readQueue) busy(uid string) {
	q.leave(uid)
	q.pods[uid] = &wantedRead{state: settling}
}

// failed ends a reading that failed, and says how long it is to rest: then comes rested.
func (q *readQueue) failed(uid string) time.Duration {
	w := q.leave(uid)
	q.pods[uid] = &wantedRead{state: resting, failures: w.failures + 1}
	return readRetry.After(w.failures+1, 0)
}

// readRetry is the rest after a reading that failed.
var readRetry = backoff.Policy{First: time.Second, Max: 30 * time.Second}

func (q *readQueue) settled(uid string) { q.back(uid, settling) }
func (q *readQueue) rested(uid string)  { q.back(uid, resting) }

func (q *readQueue) back(uid string, from readState) {
	if w := q.pods[uid]; w != nil && w.state == from {
		q.rejoin(uid, &wantedRead{failures: w.failures})
	}
}

// rouse ends all rests: what failed may succeed now.
func (q *readQueue) rouse() {
	for uid := range q.pods {
		q.rested(uid)
	}
}

// hold keeps the pod from being read until release.
func (q *readQueue) hold(uid string)    { q.held[uid] = true }
func (q *readQueue) release(uid string) { delete(q.held, uid) }

func (q *readQueue) leave(uid string) *wantedRead {
	q.running--
	return q.pods[uid]
}

func (q *readQueue) rejoin(uid string, w *wantedRead) {
	q.pods[uid] = w
	q.line = append(q.line, uid)
}
