package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is asked of the kernel. A folder on the way to manifests matters by the names in it alone; one that holds
// manifests also by what is written to them. IN_MODIFY is not asked for: only the closing of a file says that its
// writer is done. That is why this is inotify itself and not fsnotify, which has no event for it.
const (
	onTheWay = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF |
		unix.IN_MOVE_SELF | unix.IN_ATTRIB
	withManifests = onTheWay | unix.IN_CLOSE_WRITE
	howToWatch    = unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_MASK_ADD
	ofTheFolder   = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT
)

// interest is why a folder is watched.
type interest struct {
	manifests bool            // it is the manifest folder
	names     map[string]bool // names in it that lead to manifests
}

// watch is one inotify instance and the reasons for which it watches folders. Without inotify (the kernel's limit of
// instances, say) it still waits and wakes; then the regular check alone finds changes.
//
// wake and close may be called at any time from anywhere; all else belongs to the one worker that reads.
type watch struct {
	mu     sync.Mutex
	file   *os.File
	closed bool
	late   bool
	check  bool
	woken  chan struct{} // for waiting without inotify

	interests map[int32]*interest
	next      map[int32]*interest // under construction, between begin and end
	buf       []byte
}

func newWatch() *watch { return &watch{woken: make(chan struct{}, 1), buf: make([]byte, 64<<10)} }

// open makes the inotify instance, where there is none.
func (w *watch) open() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil || w.closed {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify cannot be had, so changes are noticed at the regular check only: %w", err)
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	return nil
}

// close frees the instance; who waits in await returns. The watch is of no use afterwards.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file != nil {
		_ = w.file.Close() // it holds nothing that could be lost
	}
}

// wake makes await return: with late when a time that the reader waits for has come, else for the regular check.
func (w *watch) wake(late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = w.late || late
	w.check = w.check || !late
	w.interrupt()
}

func (w *watch) interrupt() {
	if w.file != nil {
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails on a closed file only, whose reader returns anyhow
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// begin starts to rebuild the reasons; what follow and folder do not name again until end is no longer watched.
func (w *watch) begin() { w.next = map[int32]*interest{} }

// follow watches dir for the name in it, which leads to manifests.
func (w *watch) follow(dir, name string) error {
	in, err := w.add(dir, onTheWay)
	if in != nil {
		in.names[name] = true
	}
	return err
}

// content watches dir for what is written to the file of that name.
func (w *watch) content(dir, name string) error {
	in, err := w.add(dir, withManifests)
	if in != nil {
		in.names[name] = true
	}
	return err
}

// folder watches dir as the manifest folder.
func (w *watch) folder(dir string) error {
	in, err := w.add(dir, withManifests)
	if in != nil {
		in.manifests = true
	}
	return err
}

func (w *watch) add(dir string, mask uint32) (*interest, error) {
	wd := int32(-1)
	err := w.control(func(fd uintptr) (err error) {
		n, err := unix.InotifyAddWatch(int(fd), dir, mask|howToWatch)
		wd = int32(n) //nolint:gosec // the kernel's watch descriptors are ints that fit
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), err != nil && w.isClosed():
		return nil, nil // who looks at it next says so, or nobody looks any more
	case err != nil:
		return nil, fmt.Errorf("%s cannot be watched, so changes there are noticed at the regular check only: %w", dir, err)
	case wd < 0:
		return nil, nil
	}
	in := w.next[wd]
	if in == nil {
		in = &interest{names: map[string]bool{}}
		w.next[wd] = in
	}
	return in, nil
}

// end gives up the watches that have no reason any more.
func (w *watch) end() {
	for wd := range w.interests {
		if w.next[wd] == nil {
			// It fails where the folder is gone, and with it its watch.
			_ = w.control(func(fd uintptr) error {
				_, err := unix.InotifyRmWatch(int(fd), uint32(wd)) //nolint:gosec // never negative
				return err
			})
		}
	}
	w.interests, w.next = w.next, nil
}

// control runs f with the instance's descriptor, which stays open meanwhile; without one it does nothing.
func (w *watch) control(f func(fd uintptr) error) error {
	raw, err := w.raw()
	if raw == nil || err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(fd) }); err != nil {
		return err
	}
	return failed
}

func (w *watch) raw() (rawConn, error) {
	w.mu.Lock()
	file := w.file
	w.mu.Unlock()
	if file == nil {
		return nil, nil
	}
	return file.SyscallConn()
}

type rawConn interface {
	Control(f func(fd uintptr)) error
	Read(f func(fd uintptr) (done bool)) error
}

// await blocks until something happened, wake was called or ctx ended; then it says what.
func (w *watch) await(ctx context.Context) changes {
	for ctx.Err() == nil {
		if c := w.collect(ctx, true); !c.none() {
			return c
		}
		if w.isClosed() {
			break
		}
	}
	return changes{}
}

func (w *watch) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// collect takes what happened until now, and, if wait is set and that is nothing, waits for more.
func (w *watch) collect(ctx context.Context, wait bool) changes {
	var c changes
	w.mu.Lock()
	if w.file != nil {
		_ = w.file.SetReadDeadline(time.Time{}) // fails on a closed file only, and so will the read
	}
	c.late, c.check = w.late, w.check
	w.late, w.check = false, false
	w.mu.Unlock()
	raw, err := w.raw()
	if err != nil {
		return c
	}
	wait = wait && c.none()
	if raw == nil {
		if wait {
			select {
			case <-w.woken:
			case <-ctx.Done():
			}
		}
		return c
	}
	defer context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.interrupt()
	})()
	// An error here is a deadline or a closed file: what woke us is told by the next call, or nobody asks any more.
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Read(int(fd), w.buf)
		if err != nil || n <= 0 {
			return !wait || !errors.Is(err, unix.EAGAIN)
		}
		w.decode(w.buf[:n], &c)
		return !wait || !c.none()
	})
	return c
}
