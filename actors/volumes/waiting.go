package volumes

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
)

// waitError is the error of a mount that depends on others: they bind a claim, attach a volume, register a driver, or release
// the volume.
type waitError struct {
	error
	// over reports, without I/O, whether the wait may be over. The mount is then retried. If over is nil, the end cannot be
	// observed, and the mount is retried soon.
	over func() bool
	// normal marks an expected wait. It is no failure and has no Event.
	normal bool
}

func (e waitError) Unwrap() error { return e.error }

// wait returns a waitError without an observable end.
func wait(why messages.Cause, format string, args ...any) error {
	return waitError{error: why.Errorf(format, args...)}
}

func asWait(err error) (w waitError, is bool) { return errors.AsType[waitError](err) }

func isWait(err error) bool {
	_, is := asWait(err)
	return is
}

// isNormalWait reports whether a mount waits for others and nothing is wrong.
func isNormalWait(err error) bool {
	w, _ := asWait(err)
	return w.normal
}

// mayBeOver reports whether a mount that failed so may go on.
func mayBeOver(err error) bool {
	w, _ := asWait(err)
	return w.over != nil && w.over()
}

// waitRetry is between retries where the end of a wait cannot be observed.
var waitRetry = backoff.Policy{First: 500 * time.Millisecond, Max: 5 * time.Second}

// normalWait is how long attaching a volume takes normally. After that the kubelet, too, records an Event.
const normalWait = 2 * time.Minute

// inUseOn reports whether the Node lists the volume as in use, so that it is not detached.
func inUseOn(node *v1.Node, name string) bool {
	return node != nil && slices.Contains(node.Status.VolumesInUse, v1.UniqueVolumeName(name))
}

// attachedTo reports whether the Node lists the volume as attached.
func attachedTo(node *v1.Node, name string) bool {
	return node != nil && slices.ContainsFunc(node.Status.VolumesAttached,
		func(a v1.AttachedVolume) bool { return a.Name == v1.UniqueVolumeName(name) })
}
