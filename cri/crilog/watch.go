package crilog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch tells when something happens to the files of a folder (inotify(7)).
type watch struct {
	f     *os.File
	space []byte
}

func newWatch(dir Dir) (w *watch, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w = &watch{os.NewFile(uintptr(fd), "inotify"), make([]byte, 4096)}
	at, err := dir.OpenBeneath(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", at.Fd()), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVE)
		err = errors.Join(err, at.Close())
	}
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w, nil
}

// wait waits for something to happen since the wait before, but no longer than most.
func (w *watch) wait(ctx context.Context, most time.Duration) {
	if w.f.SetReadDeadline(time.Now().Add(most)) != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = w.f.Read(w.space)
}

func (w *watch) close() error { return w.f.Close() }
