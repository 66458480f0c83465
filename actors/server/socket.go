package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/config"
)

// ErrInUse is returned by Open if another agent holds the admin socket.
var ErrInUse = errors.New("another playlet is running")

// socketOpener opens the admin socket. A lock beside it distinguishes a dead agent's socket, which is replaced, from a live
// one's: the kernel releases the lock when its process ends, and two agents that start at the same time cannot both consider the
// socket dead. The file of the lock stays, since its removal would permit two locks.
type socketOpener struct {
	path   string
	group  string       // with access, too
	before func() error // called once, before the socket is first created; may be nil
	lock   *os.File
	mine   os.FileInfo // of the socket's file
}

func (d *socketOpener) lockPath() string { return d.path + ".lock" }

func (d *socketOpener) open(ctx context.Context) (net.Listener, error) {
	if !filepath.IsAbs(d.path) { // "@name" too: an abstract socket has no permissions
		return nil, fmt.Errorf("the socket's path %q is not absolute", d.path)
	}
	if len(d.path) > config.MaxSocketPath {
		return nil, fmt.Errorf("the path %s is longer than the %d bytes that a unix socket's may have", d.path,
			config.MaxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o755); err != nil {
		return nil, fmt.Errorf("making the socket's folder: %w", err)
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	if err := d.removeStale(ctx); err != nil {
		return nil, err
	}
	if d.before != nil {
		if err := d.before(); err != nil {
			return nil, err
		}
		d.before = nil
	}
	lc := net.ListenConfig{Control: privately}
	l, err := lc.Listen(ctx, "unix", d.path)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by name, which could be another's socket; see close
	if d.mine, err = os.Lstat(d.path); err == nil {
		err = d.share()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// share gives the group access to the socket. Its folder belongs to the agent's own user, so the name still refers to this
// socket.
func (d *socketOpener) share() error {
	if d.group == "" {
		return nil
	}
	id, err := strconv.Atoi(d.group)
	if found, unknown := user.LookupGroup(d.group); unknown == nil {
		id, err = strconv.Atoi(found.Gid)
	}
	if err != nil || id < 0 {
		return fmt.Errorf("there is no group %q (--admin-socket-group)", d.group)
	}
	if err := os.Lchown(d.path, -1, id); err != nil {
		return fmt.Errorf("giving %s to the group %s: %w", d.path, d.group, err)
	}
	return os.Chmod(d.path, 0o660) //nolint:gosec // the group is to have it
}

// privately sets the socket's mode before it has a name, so that no other user can ever open it: on Linux the name inherits the
// mode of the unbound socket.
func privately(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failed
}

// claim takes the lock, or keeps it if its file is still the one on disk.
func (d *socketOpener) claim() error {
	if d.lock != nil {
		held, err := d.lock.Stat()
		if err != nil {
			return fmt.Errorf("the lock beside the socket: %w", err)
		}
		if found, err := os.Lstat(d.lockPath()); err == nil && os.SameFile(held, found) {
			return nil
		}
		_ = d.lock.Close() // its file was removed
		d.lock = nil
	}
	f, err := os.OpenFile(d.lockPath(), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("the lock beside the socket: %w", err)
	}
	// Any user that can open the file can hold the lock. In a world-writable folder, the file may belong to another user.
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil || int(stat.Uid) != os.Geteuid() {
		return errors.Join(fmt.Errorf("%s belongs to the user %d: remove it, and name a socket in a folder that only "+
			"root can write", d.lockPath(), stat.Uid), err, f.Close())
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return errors.Join(fmt.Errorf("%w on %s%s", ErrInUse, d.path, holder(f)), f.Close())
	case err != nil:
		return errors.Join(fmt.Errorf("locking %s: %w", d.lockPath(), err), f.Close())
	}
	inscribe(f)
	d.lock = f
	return nil
}

// inscribe writes the PID of the holder into the lock's file, for the error of another agent. The lock counts without it, e.g.
// on a full disk.
func inscribe(f *os.File) {
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
}

func holder(f *os.File) string {
	var text [20]byte
	n, _ := f.ReadAt(text[:], 0) // it is short: io.EOF
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// removeStale removes an old socket. It runs under the lock.
func (d *socketOpener) removeStale(ctx context.Context) error {
	info, err := os.Lstat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket; it is left alone", d.path)
	}
	if d.mine == nil || !os.SameFile(d.mine, info) { // our own socket with a failed loop needs no check
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", d.path)
		if err == nil {
			return errors.Join(fmt.Errorf("%w on %s, or another program listens there", ErrInUse, d.path), conn.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("looking whether anyone listens on %s: %w", d.path, err)
		}
	}
	return os.Remove(d.path)
}

func (d *socketOpener) intact() bool {
	found, err := os.Lstat(d.path)
	return err == nil && d.mine != nil && os.SameFile(d.mine, found)
}

func (d *socketOpener) close() error {
	var errs []error
	if d.intact() {
		errs = append(errs, os.Remove(d.path))
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	return errors.Join(errs...)
}
