package images

import (
	"fmt"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// pullRetry is the kubelet's back-off after a failed pull.
var pullRetry = backoff.Policy{First: 10 * time.Second, Max: 300 * time.Second}

// soon is the delay between attempts to reach an unreachable runtime. It is short, so that its return is noticed at once.
const soon = 500 * time.Millisecond

// phase is the state of a try.
type phase int

const (
	idle    phase = iota
	queued        // waits for a slot
	busy          // in progress
	waiting       // failed; retried at a set time
)

func (p phase) String() string { return [...]string{"idle", "queued", "busy", "waiting"}[p] }

// try is the state of the looks at an image, or of its pulls with the same credentials. At most one is in progress.
type try struct {
	phase  phase
	steps  int // failures in a row that count for the back-off
	last   result
	failed messages.Reason // the latest failure, for waiting
	since  time.Time       // of the first failure in a row
	until  time.Time       // when waiting ends
	notice time.Time       // when the back-off is reported to the needs; zero for never
}

// fail begins the wait after a failure.
func (t *try) fail(now time.Time, o outcome) {
	delay := soon
	if o.result == failed {
		if t.steps++; t.steps == 1 {
			t.since = now
		}
		delay = pullRetry.After(t.steps, 0)
	}
	t.phase, t.last, t.until, t.notice = waiting, o.result, now.Add(delay), time.Time{}
	t.failed = messages.Reason{Code: o.code, Message: o.msg, RetryAt: t.until, Tries: t.steps, Cause: o.cause}
	if o.result == failed {
		t.failed.Since = t.since
	}
}

// reason returns the reason for a need that arrives during the wait, or already has the failure. The text is the kubelet's.
func (t *try) reason(image string) messages.Reason {
	if t.last == unreachable {
		return t.failed
	}
	return messages.Reason{
		Code:    messages.ReasonImagePullBackOff,
		Message: fmt.Sprintf("Back-off pulling image %q: %s", image, t.failed),
		RetryAt: t.until, Since: t.failed.Since, Tries: t.failed.Tries, Cause: t.failed.Cause,
	}
}

// wakes returns the time at which tick must handle the try; zero for never.
func (t *try) wakes() time.Time {
	switch {
	case t.phase != waiting:
		return time.Time{}
	case !t.notice.IsZero():
		return t.notice
	default:
		return t.until
	}
}
