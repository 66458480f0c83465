package kinds

import (
	"errors"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// OperationTimeout ends an operation that makes no progress, as far as the kernel allows. A change of all files' group, and the
// removal of a large emptyDir, may take as long as they make progress.
const OperationTimeout = 10 * time.Minute

// Retry is the kubelet's back-off for volumes. It is also used for plugins that register (RetryPlugin).
var Retry = backoff.Policy{First: 500 * time.Millisecond, Max: 2*time.Minute + 2*time.Second}

// RetryPlugin returns the delay after this many failed registrations of a plugin.
func RetryPlugin(fails int) time.Duration { return Retry.After(fails, 0) }

// WaitError is the error of a mount that depends on others to bind a claim, attach a volume, register a driver, or release the
// volume.
type WaitError struct {
	Err error
	// Over reports, without I/O, whether the wait may be over. The mount is then retried. If Over is nil, the end cannot be
	// observed, and the mount is retried soon.
	Over func() bool
	// Normal marks an expected wait. It is no failure and has no Event.
	Normal bool
}

// Error implements error.
func (e WaitError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of errors.Is.
func (e WaitError) Unwrap() error { return e.Err }

// Wait returns a WaitError without an observable end.
func Wait(why messages.Cause, format string, args ...any) error {
	return WaitError{Err: why.Errorf(format, args...)}
}

// AsWait finds the WaitError that an error is or wraps.
func AsWait(err error) (w WaitError, is bool) { return errors.AsType[WaitError](err) }

// IsWait reports whether a mount depends on others.
func IsWait(err error) bool {
	_, is := AsWait(err)
	return is
}

// IsNormalWait reports whether a mount waits for others and nothing is wrong.
func IsNormalWait(err error) bool {
	w, _ := AsWait(err)
	return w.Normal
}

// MayBeOver reports whether a mount that failed so may go on.
func MayBeOver(err error) bool {
	w, _ := AsWait(err)
	return w.Over != nil && w.Over()
}
