package images

import (
	"fmt"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// pullRetry is the kubelet's back-off after a failed pull.
var pullRetry = backoff.Policy{First: 10 * time.Second, Max: 300 * time.Second}

// soon is how long a runtime that cannot be reached is left alone, so that its return is noticed at once.
const soon = 500 * time.Millisecond

// phase is where the looks at an image, or its pulls, are.
type phase int

const (
	idle    phase = iota
	queued        // waits for a slot
	busy          // under way
	waiting       // failed; done again at a set time
)

func (p phase) String() string { return [...]string{"idle", "queued", "busy", "waiting"}[p] }

// try is the looks at an image, or its pulls, of which one at most is under way.
type try struct {
	phase  phase
	steps  int // failures in a row that count for the back-off
	last   result
	failed messages.Reason // the last failure, for waiting
	since  time.Time       // of the first failure in a row
	until  time.Time       // when waiting ends
	notice time.Time       // when those who wait are told that it backs off; zero when there is nothing to tell
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

// reason is what somebody who comes during the wait, or has seen the failure, waits for. The words are the kubelet's.
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

// wakes is when tick has something to do about it; zero when it has not.
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
