// Package memwatch has the kernel tell when memory becomes short, so that nobody has to look all the time: on cgroups of version
// 1 by thresholds of usage (cgroup.event_control), which are exact, and on version 2 by triggers of pressure stall
// information (Documentation/accounting/psi.rst), which tell of memory that is being reclaimed.
package memwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Threshold is a use of memory that is to be told of.
type Threshold struct {
	Group string // the path of a cgroup; empty: the machine
	Usage int64  // in bytes, the page cache included
}

// Watch is armed. It is not safe for concurrent use.
type Watch struct {
	exact, broken bool
	fds           []unix.PollFd
}

// Exact says that each crossing of a threshold is told of. Otherwise the kernel tells of shortage alone, or of nothing.
func (w *Watch) Exact() bool { return w != nil && w.exact }

// Broken says that the kernel tells of a threshold no more, as of a cgroup that was removed, or of one
// that never began.
func (w *Watch) Broken() bool { return w == nil || w.broken }

// psiTriggers are stalls of a tenth of a second in a window, in microseconds. Without CAP_SYS_RESOURCE no window is below 2 s.
var psiTriggers = []string{"some 100000 1000000", "some 100000 2000000"}

// Arm asks the kernel. cgroups and proc are where these are mounted. A watch that the kernel tells nothing waits for its time to
// pass. Close must be called.
func Arm(cgroups, proc string, list []Threshold) *Watch {
	w := &Watch{exact: len(list) > 0}
	for _, t := range list {
		fd, err := usageEvent(filepath.Join(cgroups, "memory", t.Group), t.Usage)
		if err != nil {
			w.exact = false
			file := filepath.Join(cgroups, t.Group, "memory.pressure")
			if t.Group == "" {
				file = filepath.Join(proc, "pressure/memory")
			}
			if fd, err = pressureEvent(file); err == nil {
				w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI}) //nolint:gosec // a descriptor
			}
			continue
		}
		w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) //nolint:gosec // a descriptor
	}
	return w
}

// usageEvent is a descriptor that can be read when the usage of a cgroup of version 1 has crossed the threshold.
func usageEvent(dir string, usage int64) (fd int, err error) {
	file, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return -1, err
	}
	defer func() { _ = file.Close() }() // the kernel holds the cgroup
	control, err := os.OpenFile(filepath.Join(dir, "cgroup.event_control"), os.O_WRONLY, 0)
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return -1, err
	}
	if _, err = fmt.Fprintf(control, "%d %d %d", fd, file.Fd(), usage); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// pressureEvent is a descriptor with POLLPRI when processes wait for memory.
func pressureEvent(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, trigger := range psiTriggers {
		if _, err = unix.Write(fd, append([]byte(trigger), 0)); err == nil {
			return fd, nil
		}
	}
	return -1, errors.Join(err, unix.Close(fd))
}

// Wait waits until the kernel tells of memory, limit has passed, or ctx ends. It holds a thread. What it cannot wait for any more
// it waits for once.
func (w *Watch) Wait(ctx context.Context, limit time.Duration) {
	cancel, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-time.After(limit):
		}
		return
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_, _ = unix.Write(cancel, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // its only error is that it was told already
	})
	fds := append([]unix.PollFd{{Fd: int32(cancel), Events: unix.POLLIN}}, w.fds...) //nolint:gosec // a descriptor
	for until := time.Now().Add(limit); ; {
		_, err := unix.Poll(fds, int(max(time.Until(until).Milliseconds(), 0)))
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	w.fds = slices.DeleteFunc(w.fds, func(fd unix.PollFd) bool {
		at := slices.IndexFunc(fds, func(f unix.PollFd) bool { return f.Fd == fd.Fd })
		if fds[at].Revents&(unix.POLLERR|unix.POLLNVAL|unix.POLLHUP) != 0 { // it would be told at once, again and again
			w.broken = true
			_ = unix.Close(int(fd.Fd)) // nothing was written
			return true
		}
		var count [8]byte
		_, _ = unix.Read(int(fd.Fd), count[:]) // what was told is told; of pressure nothing is to be read
		return false
	})
	if !stop() {
		<-done
	}
	_ = unix.Close(cancel)
}

// Close ends the watch; nil is one that never began.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	for _, fd := range w.fds {
		_ = unix.Close(int(fd.Fd)) // nothing was written
	}
	w.fds = nil
}
