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

	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// The waits after failures. That of the API server as a whole stays short, so that what waits follows soon when it returns.
const (
	lineWait, lineMost = time.Second, time.Minute
	refusedMost        = 5 * time.Minute  // nothing changes by itself where somebody has said no
	absentMost         = 20 * time.Second // a namespace that is not there yet may be made at any time
	gateWait, gateMost = 250 * time.Millisecond, 10 * time.Second
	timedOutMost       = 10 * time.Second
	deleteWait         = 2 * time.Second // an object that is deleted and still observed may only be late, or held by finalizers
	// A mirror pod that others delete or change is made again at once, and, where they go on, at these times. The kubelet knows
	// no end of it.
	makeWait, makeMost = time.Second, 30 * time.Second
	makeCalm           = 10 * time.Minute
	retryAfterMost     = 5 * time.Minute
)

// oddConflicts in a row are no matter of what is observed late any more, and are told.
const oddConflicts = 3

// fate is what the answer to a write means.
type fate string

const (
	done        fate = "done"
	gone        fate = "gone"        // the object is not there
	conflict    fate = "conflict"    // it is another one, or something else has changed it
	refused     fate = "refused"     // this write
	broken      fate = "broken"      // this write, for now
	unavailable fate = "unavailable" // any write would have fared so
)

// answer is the result of a write.
type answer struct {
	job        *job
	pod        *v1.Pod // as it is now; nil after a deletion
	fate       fate
	err        error
	retryAfter time.Duration // as the API server asks; 0: it does not
}

// read says what the error of a write means.
func read(d verb, err error) (fate, time.Duration) {
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
	case apierrors.IsNotFound(err) && d != createMirror:
		return gone, 0
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // also where the UID is another: what is observed will tell
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
		return unavailable, wait // no answer of the API server
	default:
		return broken, wait
	}
}

// otherUID says that an object of that name is there with another UID: metadata.uid of the patch would have changed it.
func otherUID(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// gate is what all writes have in common: whether the API server takes them.
type gate struct {
	failures int
	until    time.Time
	since    time.Time
	err      error
}

// width is how many writes may be under way: one, after a failure, until one has succeeded.
func (g *gate) width(now time.Time) int {
	switch {
	case g.failures == 0:
		return writers
	case now.Before(g.until):
		return 0
	default:
		return 1
	}
}

// wrote takes the result of a write.
func (b *machine) wrote(now time.Time, a answer) {
	l := b.lines[a.job.key]
	if l == nil {
		return
	}
	if l.busy {
		l.busy = false
		b.busy--
	}
	b.dirty[l], b.unsettled[l] = true, true
	if a.fate != unavailable {
		b.gate = gate{} // it answers
	}
	switch a.fate {
	case done:
		l.failures, l.due, l.trouble = 0, time.Time{}, nil
		l.since = time.Time{} // what is to be written now is younger
		b.succeeded(l, now, a)
	case gone:
		l.failures, l.due, l.trouble = 0, time.Time{}, nil
		l.lose(a.job.uid, now)
	default:
		b.failed(l, now, a)
	}
}

func (b *machine) succeeded(l *line, now time.Time, a answer) {
	switch a.job.verb {
	case patchStatus:
		if a.pod != nil {
			l.belief = &belief{a.pod.UID, a.pod, l.observed, now}
			l.sent = &sending{uid: a.pod.UID, from: a.job.from, to: a.job.to, got: &a.pod.Status}
		}
	case createMirror:
		if a.pod != nil {
			l.belief = &belief{a.pod.UID, a.pod, l.observed, now}
		}
		b.made(l, now)
	case deletePod, deleteMirror:
		l.lose(a.job.uid, now)
		l.deletions++
		l.deleteAfter = now.Add(b.wait(deleteWait, lineMost, l.deletions))
		l.ours = !a.job.foreign
	}
}

// made notes that a mirror pod was created. Where that is since somebody removed or changed the one before, the next one waits
// the longer the oftener that was.
func (b *machine) made(l *line, now time.Time) {
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

// lose notes that an object is not there, until something else is observed or, as whoever said so may have been wrong, until it
// is observed for long.
func (l *line) lose(uid types.UID, now time.Time) {
	if l.observed != nil && l.observed.UID == uid {
		l.belief = &belief{uid, nil, l.observed, now}
	} else if l.belief != nil && l.belief.uid == uid {
		l.belief = nil
	}
}

func (b *machine) failed(l *line, now time.Time, a answer) {
	l.failures++
	most := lineMost
	switch a.fate {
	case unavailable:
		g := &b.gate
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
	t := &trouble{what: failure(a, b.node), since: now, fate: a.fate, quiet: a.fate == conflict && l.failures < oddConflicts}
	if l.trouble != nil {
		t.since = l.trouble.since
	}
	l.trouble = t
	b.troubled[l] = true
}

// wait is the back-off after so many failures in a row.
func (b *machine) wait(first, most time.Duration, failures int) time.Duration {
	return backoff.Policy{First: first, Max: most, Jitter: backoff.Half}.After(failures, b.random())
}
