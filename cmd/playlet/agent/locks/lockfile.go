// Package locks keeps agents apart: one of a node after another, by the kubelet's --lock-file, and one of a root folder and of a
// runtime.
package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how often a lock that another process holds is tried again.
const lockWait = 250 * time.Millisecond

// File is the kubelet's --lock-file: its holder runs, all others wait. An agent hands over to the next one by it: with
// --exit-on-lock-contention, a bootstrap agent notices the next agent.
type File struct {
	file *os.File
	// contended is closed when another process has opened the file. It is nil unless the file is watched.
	contended chan struct{}
	events    *os.File // inotify
	done      chan struct{}
}

// Hold waits for the lock until ctx ends, and then watches the file if asked to. An empty path is no lock, and nil.
func Hold(ctx context.Context, path string, watch bool, log *slog.Logger) (*File, error) {
	if path == "" {
		return nil, nil
	}
	f, err := openPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("--lock-file: %w", err)
	}
	if err := flock(ctx, f, log); err != nil {
		return nil, errors.Join(fmt.Errorf("--lock-file %s: %w", path, err), f.Close())
	}
	l := &File{file: f}
	if watch {
		if err := l.watch(path); err != nil {
			return nil, errors.Join(fmt.Errorf("--exit-on-lock-contention: watching %s: %w", path, err), f.Close())
		}
	}
	return l, nil
}

// openPrivate opens or makes a lock file that no other user can open: flock(2) needs no right to write, so that whoever can open
// the file can keep the agent from its start, or have it give way. In a folder like /run/lock, where every user makes files,
// another's may be there already.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &stat)
	switch {
	case err != nil:
	case int(stat.Uid) != os.Geteuid():
		err = fmt.Errorf("%s belongs to the user %d, who can keep the agent from running: remove it, and name a file in a "+
			"folder that only root can write", path, stat.Uid)
	case stat.Mode&0o077 != 0:
		err = f.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(ctx context.Context, f *os.File, log *slog.Logger) error {
	for logged := false; ; logged = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if !logged {
			log.Warn("another process holds the lock file; waiting until it is released", "file", f.Name())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process holds it: %w", ctx.Err())
		case <-time.After(lockWait):
		}
	}
}

// watch makes the kernel report each process that opens the file from now on.
func (l *File) watch(path string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	l.events = os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN); err != nil {
		return errors.Join(err, l.events.Close())
	}
	l.contended, l.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.done)
		if _, err := l.events.Read(make([]byte, unix.SizeofInotifyEvent+unix.PathMax)); err == nil {
			close(l.contended)
		}
	}()
	return nil
}

// Contention is closed when the agent has to give way; nil when it never has.
func (l *File) Contention() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.contended
}

// Release lets the next one run.
func (l *File) Release() error {
	if l == nil {
		return nil
	}
	var errs []error
	if l.events != nil {
		errs = append(errs, l.events.Close())
		<-l.done
	}
	return errors.Join(append(errs, l.file.Close())...)
}
