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
)

// ServerTimeout is how long a file system may take to answer one question. One that takes longer counts as hung.
const ServerTimeout = 10 * time.Second

// IsDead reports whether a call failed since the server of a file system is gone. Its mount is of no use to anybody.
func IsDead(err error) bool {
	for _, code := range []error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EACCES, unix.EHOSTDOWN, unix.ECONNABORTED} {
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

// The bounds of calls that hang. Each keeps a thread, and Go ends a process that has 10,000. Above hungInAll only volumes without
// a hung call get another one, so that the volumes of one tenant do not use up the calls of all others.
const (
	hungOfVolume = 16
	hungInAll    = 1000
	hungAtMost   = 8000
)

// ErrManyHang is the refusal of a call. It counts as an end of the wait.
var ErrManyHang = fmt.Errorf("too many earlier calls hang: %w", context.DeadlineExceeded)

type call struct {
	volume   string
	hangs    bool          // a caller waited until its end; guarded by calls
	done     chan struct{} // closed after the others are set
	value    any
	err      error
	panicked any
}

// Bounded makes a call that the server of a file system may never answer. It returns the result, or the end of ctx. The call
// then stays blocked in a goroutine of its own. Only one call with a key is in progress at a time, and other callers join
// it: a hung server costs one thread for each key. All callers with one key use the same type, and share the value: T is a
// plain value that owns nothing, such as a descriptor that one caller would close under the others. The volume is the same for
// all calls on one file system, whatever pod has it. A call of a volume with 16 others that hang is refused with ErrManyHang.
// Once 1,000 calls hang on the machine, so is a call of a volume with any other that hangs.
func Bounded[T any](ctx context.Context, volume, key string, do func() (T, error)) (T, error) {
	return bounded(ctx, volume, key, func() (func() (T, error), error) { return do, nil })
}

// Bounded makes a call on a copy of the root, as the function Bounded does. The caller may close the root while the call hangs.
// A call that is joined or refused makes no copy, and one that is made closes its own.
func (r *Root) Bounded(ctx context.Context, volume, key string, do func(*Root) error) error {
	_, err := bounded(ctx, volume, key, func() (func() (struct{}, error), error) {
		own, err := r.duplicate()
		return func() (none struct{}, err error) {
			defer own.Close() //nolint:errcheck // read only
			return none, do(own)
		}, err
	})
	return err
}

// bounded is Bounded. begin returns the call, and is called only for one that is neither joined nor refused.
func bounded[T any](ctx context.Context, volume, key string, begin func() (func() (T, error), error)) (T, error) {
	var none T
	calls.Lock()
	c := calls.byKey[key]
	if c == nil {
		if of, all := hung(volume); of >= hungOfVolume || of > 0 && all >= hungInAll || all >= hungAtMost {
			calls.Unlock()
			return none, fmt.Errorf("%s: %w (%d of volume %s, %d in all)", key, ErrManyHang, of, volume, all)
		}
		do, err := begin()
		if err != nil {
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
			panic(c.panicked) // where it is kept from ending the process
		}
		value, _ := c.value.(T) // the nil of an interface is none
		return value, c.err
	case <-ctx.Done():
		calls.Lock()
		c.hangs = true
		calls.Unlock()
		return none, fmt.Errorf("%s: the file system does not answer: %w", key, context.Cause(ctx))
	}
}

// hung counts the calls that hang, of a volume and in all. The caller holds the lock of calls.
func hung(volume string) (of, all int) {
	for _, c := range calls.byKey {
		if c.hangs {
			all++
			if c.volume == volume {
				of++
			}
		}
	}
	return of, all
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

// duplicate opens the root once more, for a call that may outlive it.
func (r *Root) duplicate() (*Root, error) {
	defer runtime.KeepAlive(r.dir) // its descriptor is in use
	fd, err := unix.FcntlInt(r.dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Root{dir: os.NewFile(uintptr(fd), r.path), path: r.path}, nil
}
