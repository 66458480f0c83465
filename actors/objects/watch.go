package objects

import (
	"context"
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch tells when something in the folder may have changed. It may tell too often, and, where the folder is not there or
// cannot be watched, too late: the regular check is the net. inotify itself, for it says when a writer is done.
type watch struct {
	dir string

	mu     sync.Mutex
	closed bool
	file   *os.File // the inotify instance; nil when nothing is watched
	woken  chan struct{}
}

const events = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

func newWatch(dir string) *watch { return &watch{dir: dir, woken: make(chan struct{}, 1)} }

// open begins to watch, unless it does; what happens from then on is reported.
func (w *watch) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.file != nil {
		return
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	if _, err := unix.InotifyAddWatch(fd, w.dir, events|unix.IN_ONLYDIR); err != nil {
		_ = unix.Close(fd) // nothing was read from it
		return
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	go w.listen(w.file)
}

// listen ends when the watch is closed, or when what it watched is gone: then it is opened again with the next reading.
func (w *watch) listen(f *os.File) {
	buf := make([]byte, 4096)
	for {
		n, err := f.Read(buf)
		gone := false
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			gone = gone || mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
		if err != nil || gone {
			w.mu.Lock()
			if w.file == f {
				w.file = nil
			}
			w.mu.Unlock()
			_ = f.Close() // read only
			w.wake()
			return
		}
		w.wake()
	}
}

// wake ends an await, or the next one.
func (w *watch) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *watch) await(ctx context.Context) {
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.file != nil {
		_ = w.file.Close() // ends listen
		w.file = nil
	}
}
