package safepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/shares"
)

// ServerTimeout is the time that a file system has to answer one request. A slower file system counts as hung.
const ServerTimeout = 10 * time.Second

// IsDead reports whether a call failed because the server of a file system is gone. Its mount is then useless. EACCES does not
// count: a live FUSE mount returns it to every user except its own, including root.
func IsDead(err error) bool {
	for _, code := range []error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EHOSTDOWN, unix.ECONNABORTED} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// calls are the calls in progress on file systems, by key.
var calls = struct {
	sync.Mutex
	byKey map[string]*call
}{byKey: map[string]*call{}}

const (
	// maxCalls limits the calls in progress. Each call holds a thread, and Go ends a process that has 10,000. Namespaces and
	// pods have shares of this number, as in package shares.
	maxCalls = 4000
	// hungOfVolume limits the hung calls of one volume.
	hungOfVolume = 16
)

var places = shares.New("calls to file systems", maxCalls)

// ErrManyHang is the error of a rejected call. It wraps context.DeadlineExceeded, like the end of a wait.
var ErrManyHang = fmt.Errorf("too many earlier calls hang: %w", context.DeadlineExceeded)

// Owner is the pod for which a call is made.
type Owner struct {
	Namespace string // empty: unknown
	Pod       string // its UID, or the path of a folder if no pod is known
}

func (o Owner) keys() []string {
	if o.Namespace == "" {
		return []string{o.Pod}
	}
	return []string{"namespace " + o.Namespace, o.Pod}
}

type call struct {
	volume   string
	hangs    bool          // a caller has stopped waiting; guarded by calls
	done     chan struct{} // closed after the fields below are set
	value    any
	err      error
	panicked any
}

// Bounded makes a call that the server of a file system may never answer. It returns when the call returns or ctx ends. In the
// second case the call stays blocked in its own goroutine. Only one call with a key is in progress at a time, and other callers
// join it: a hung server costs one thread for each key. All callers with one key use the same type and share the value: T is a
// plain value that owns nothing, unlike a descriptor, which one caller would close under the others. The volume is the same for
// all calls on one file system, whichever pod has it. Bounded rejects a call with ErrManyHang if 16 calls of the volume hang,
// or if the owner's share of all calls is in use.
func Bounded[T any](ctx context.Context, owner Owner, volume, key string, do func() (T, error)) (T, error) {
	return bounded(ctx, owner, volume, key, func() (func() (T, error), error) { return do, nil })
}

// Bounded makes a call on a copy of the root, like the function Bounded. The caller may close the root while the call hangs. A
// call that is joined or rejected makes no copy, and one that is made closes its own.
func (r *Root) Bounded(ctx context.Context, volume, key string, do func(*Root) error) error {
	owner := r.owner
	if owner == (Owner{}) {
		owner.Pod = r.path
	}
	_, err := bounded(ctx, owner, volume, key, func() (func() (struct{}, error), error) {
		own, err := r.duplicate()
		return func() (none struct{}, err error) {
			defer own.Close() //nolint:errcheck // read only
			return none, do(own)
		}, err
	})
	return err
}

// SetOwner sets the owner of the calls that Bounded makes for this root. It must be called before the root is used.
func (r *Root) SetOwner(o Owner) { r.owner = o }

// bounded implements Bounded. begin returns the call to make, and is called only if the call is neither joined nor rejected.
func bounded[T any](
	ctx context.Context, owner Owner, volume, key string, begin func() (func() (T, error), error),
) (T, error) {
	var none T
	calls.Lock()
	c := calls.byKey[key]
	if c == nil {
		if n := hungOf(volume); n >= hungOfVolume {
			calls.Unlock()
			return none, fmt.Errorf("%s: %w (%d of volume %s)", key, ErrManyHang, n, volume)
		}
		release, err := places.Take(owner.keys()...)
		if err != nil {
			calls.Unlock()
			return none, fmt.Errorf("%s: %w (%w)", key, ErrManyHang, err)
		}
		do, err := begin()
		if err != nil {
			release()
			calls.Unlock()
			return none, err
		}
		c = &call{volume: volume, done: make(chan struct{})}
		calls.byKey[key] = c
		go func() {
			defer func() {
				c.panicked = recover()
				calls.Lock()
				delete(calls.byKey, key)
				release()
				calls.Unlock()
				close(c.done)
			}()
			c.value, c.err = do()
		}()
	}
	calls.Unlock()
	select {
	case <-c.done:
		if c.panicked != nil {
			panic(c.panicked) // the caller's goroutine recovers it
		}
		value, _ := c.value.(T) // a nil interface becomes the zero value
		return value, c.err
	case <-ctx.Done():
		calls.Lock()
		c.hangs = true
		calls.Unlock()
		return none, fmt.Errorf("%s: the file system does not answer: %w", key, context.Cause(ctx))
	}
}

// hungOf returns the number of hung calls of a volume. The caller holds the lock of calls.
func hungOf(volume string) (n int) {
	for _, c := range calls.byKey {
		if c.hangs && c.volume == volume {
			n++
		}
	}
	return n
}

// AskServer requests the attributes of the file system at name, within ServerTimeout. IsDead reports whether the error means a
// dead server. The error for a hung server wraps context.DeadlineExceeded.
func (r *Root) AskServer(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, ServerTimeout)
	defer cancel()
	path := filepath.Join(r.path, name)
	return r.Bounded(ctx, path, path, func(own *Root) error {
		f, err := own.OpenBeneath(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // read only
		var stat unix.Statx_t
		return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &stat)
	})
}

// duplicate returns a copy of the root, for a call that may outlive r.
func (r *Root) duplicate() (*Root, error) {
	defer runtime.KeepAlive(r.dir) // its descriptor is in use
	fd, err := unix.FcntlInt(r.dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Root{dir: os.NewFile(uintptr(fd), r.path), path: r.path, owner: r.owner}, nil
}
