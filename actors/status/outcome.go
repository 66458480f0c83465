package status

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// The delays after failures. The one for the whole API server stays short, so that pending writes follow soon after it
// returns.
const (
	lineWait, lineMost = time.Second, time.Minute
	refusedMost        = 5 * time.Minute  // a rejection does not end by itself
	absentMost         = 20 * time.Second // a missing namespace may be created at any time
	gateWait, gateMost = 250 * time.Millisecond, 10 * time.Second
	timedOutMost       = 10 * time.Second
	deleteWait         = 2 * time.Second // a deleted object may stay observed: by a late watch, or by finalizers
	// A mirror pod that other clients delete or change is recreated at once, and then with these delays. The kubelet has no
	// such limit.
	makeWait, makeMost = time.Second, 30 * time.Second
	makeCalm           = 10 * time.Minute
	retryAfterMost     = 5 * time.Minute
)

// oddConflicts is the number of consecutive conflicts after which they are reported: late observation no longer explains
// them.
const oddConflicts = 3

// outcome is the class of the answer to a write.
type outcome string

const (
	done        outcome = "done"
	gone        outcome = "gone"        // the object is absent
	conflict    outcome = "conflict"    // another object has the name, or another client changed it
	refused     outcome = "refused"     // this write
	broken      outcome = "broken"      // this write, temporarily
	unavailable outcome = "unavailable" // any write would have failed
)

// answer is the result of a write.
type answer struct {
	job        *job
	pod        *v1.Pod // the object after the write; nil after a deletion
	outcome    outcome
	err        error
	retryAfter time.Duration // the API server's Retry-After; 0: none
}

// read classifies the error of a write.
func read(d verb, err error) (outcome, time.Duration) {
	if err == nil {
		return done, 0
	}
	wait := time.Duration(0)
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = min(time.Duration(s)*time.Second, retryAfterMost)
	}
	var status apierrors.APIStatus
	var network net.Error
	switch {
	case apiclient.Absent(err) && d != createMirror:
		return gone, 0
	case apierrors.IsNotFound(err) && !apiclient.Absent(err): // a page of a proxy before the API server
		return unavailable, wait
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // or another UID: the next list shows it
		return conflict, wait
	case otherUID(err) && d == patchStatus:
		return gone, 0
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		return refused, wait
	case apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsServerTimeout(err),
		apierrors.IsTimeout(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &network):
		return unavailable, wait
	case !errors.As(err, &status) || status.Status().Code == 0:
		return unavailable, wait // not an answer of the API server
	default:
		return broken, wait
	}
}

// otherUID reports whether an object of that name has another UID, which the patch would have changed.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// serverState is the state of the API server for all writes.
type serverState struct {
	failures int
	until    time.Time
	since    time.Time
	err      error
}

// width returns how many writes may be in progress. After a failure it is one until a write succeeds.
func (g *serverState) width(now time.Time) int {
	switch {
	case g.failures == 0:
		return writers
	case now.Before(g.until):
		return 0
	default:
		return 1
	}
}

// handleResult handles the result of a write.
func (b *machine) handleResult(now time.Time, a answer) {
	l := b.lines[a.job.key]
	if l == nil {
		return
	}
	if l.busy {
		l.busy = false
		b.busy--
	}
	b.dirty[l], b.pendingChanges[l] = true, true
	if a.outcome != unavailable {
		b.server = serverState{} // the API server answers
	}
	switch a.outcome {
	case done:
		l.failures, l.due, l.failure = 0, time.Time{}, nil
		l.since, l.stepped = time.Time{}, time.Time{} // a pending write arose later
		b.succeeded(l, now, a)
	case gone:
		l.failures, l.due, l.failure = 0, time.Time{}, nil
		l.lose(a.job.uid, now)
	default:
		b.failed(l, now, a)
	}
}

func (b *machine) succeeded(l *podWriter, now time.Time, a answer) {
	switch a.job.verb {
	case patchStatus:
		if a.pod != nil {
			l.cached = &cachedObject{a.pod.UID, a.pod, l.observed, now}
			l.sent = &statusWrite{uid: a.pod.UID, from: a.job.from, to: a.job.to, got: &a.pod.Status}
		}
	case createMirror:
		if a.pod != nil {
			l.cached = &cachedObject{a.pod.UID, a.pod, l.observed, now}
		}
		b.made(l, now)
	case deletePod, deleteMirror:
		l.lose(a.job.uid, now)
		l.deletions++
		l.deleteAfter = now.Add(b.wait(deleteWait, lineMost, l.deletions))
		l.ours = !a.job.foreign
	}
}

// made records the creation of a mirror pod. If another client removed or changed the previous one, the next creation is
// delayed, the longer the more often that happened.
func (b *machine) made(l *podWriter, now time.Time) {
	again := !l.madeAt.IsZero() && now.Sub(l.madeAt) < makeCalm
	switch {
	case !again:
		l.makes, l.makeAfter = 0, time.Time{}
	case !l.ours:
		if l.makes++; l.makes > 1 {
			l.makeAfter = now.Add(b.wait(makeWait, makeMost, l.makes-1))
		}
	}
	l.madeAt, l.ours = now, false
}

// lose records that an object is absent, until another one is observed. The answer may have been wrong: an object that stays
// observed for long counts as present.
func (l *podWriter) lose(uid types.UID, now time.Time) {
	if l.observed != nil && l.observed.UID == uid {
		l.cached = &cachedObject{uid, nil, l.observed, now}
	} else if l.cached != nil && l.cached.uid == uid {
		l.cached = nil
	}
}

func (b *machine) failed(l *podWriter, now time.Time, a answer) {
	l.failures++
	most := lineMost
	switch a.outcome {
	case unavailable:
		g := &b.server
		if g.failures == 0 {
			g.since = now
		}
		g.failures++
		g.err = a.err
		g.until = now.Add(max(b.wait(gateWait, gateMost, g.failures), a.retryAfter))
		most = timedOutMost
	case refused:
		most = refusedMost
		if apierrors.IsNotFound(a.err) {
			most = absentMost
		}
	case broken, conflict, done, gone:
	}
	l.due = now.Add(max(b.wait(lineWait, most, l.failures), a.retryAfter))
	t := &failureState{what: failure(a, b.node), since: now, outcome: a.outcome,
		quiet: a.outcome == conflict && l.failures < oddConflicts}
	if l.failure != nil {
		t.since = l.failure.since
	}
	l.failure = t
	b.troubled[l] = true
}

// wait returns the back-off after consecutive failures.
func (b *machine) wait(first, most time.Duration, failures int) time.Duration {
	return backoff.Policy{First: first, Max: most, Jitter: backoff.Half}.After(failures, b.random())
}
