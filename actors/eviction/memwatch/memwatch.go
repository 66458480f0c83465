// Package memwatch has the kernel notify of a shortage of memory, which avoids constant polling. On cgroups of version 1 it uses
// thresholds of usage (cgroup.event_control), which are exact. On version 2 it uses triggers of pressure stall information
// (Documentation/accounting/psi.rst), which report reclaim of memory.
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

// Threshold is a usage of memory to be notified of.
type Threshold struct {
	Group string // the path of a cgroup; empty: the machine
	Usage int64  // in bytes, the page cache included
}

// Watch is an armed notification. It is not safe for concurrent use.
type Watch struct {
	exact, broken bool
	fds           []unix.PollFd
}

// Exact reports whether each crossing of a threshold notifies. Otherwise only a shortage does, or nothing.
func (w *Watch) Exact() bool { return w != nil && w.exact }

// Broken reports whether a threshold notifies no longer, as after the removal of its cgroup, or never did.
func (w *Watch) Broken() bool { return w == nil || w.broken }

// psiTriggers are stalls of a tenth of a second in a window, in microseconds. Without CAP_SYS_RESOURCE windows are at least 2 s.
var psiTriggers = []string{"some 100000 1000000", "some 100000 2000000"}

// Arm registers with the kernel. cgroups and proc are the mount points. A watch without notifications waits for its timeout.
// Close must be called.
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

// usageEvent returns a descriptor that becomes readable when the usage of a cgroup of version 1 crosses the threshold.
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

// pressureEvent returns a descriptor with POLLPRI when processes wait for memory.
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

// Wait blocks until the kernel notifies, limit has passed, or ctx ends. It holds a thread. A broken descriptor ends one wait and
// is then dropped.
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
		_, _ = unix.Write(cancel, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // its only error is that it was already written
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
		if fds[at].Revents&(unix.POLLERR|unix.POLLNVAL|unix.POLLHUP) != 0 { // it would wake every wait at once
			w.broken = true
			_ = unix.Close(int(fd.Fd)) // nothing was written
			return true
		}
		var count [8]byte
		_, _ = unix.Read(int(fd.Fd), count[:]) // this consumes the notification; pressure has nothing to read
		return false
	})
	if !stop() {
		<-done
	}
	_ = unix.Close(cancel)
}

// Close ends the watch; a nil watch is valid.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	for _, fd := range w.fds {
		_ = unix.Close(int(fd.Fd)) // nothing was written
	}
	w.fds = nil
}
