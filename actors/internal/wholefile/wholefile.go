// Package wholefile reads a file that others write, without taking half of what they write for the whole, and without ever
// opening what is no file: a device or a pipe may act, or block.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

// MaxBytes is the size above which a file is not read: that of manifests.
const MaxBytes = manifest.MaxBytes

// Quiet is how long a file that a writer holds open, and does not write to, is taken for one that is being written.
const Quiet = time.Second

// Identity tells whether a file was touched: as long as it stays the same, so does the content, but for a change within the
// granularity of the file system's clock, which is up to two seconds (FAT).
type Identity struct {
	Device, Inode     uint64
	Size              int64
	Modified, Changed [2]int64 // seconds and nanoseconds since 1970, of content and of anything
	Mode              uint32
}

// IdentityOf is the identity of a file that os.Lstat described.
func IdentityOf(info fs.FileInfo) Identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}
	}
	return Identity{
		Device: st.Dev, Inode: st.Ino, Size: st.Size, Mode: st.Mode,
		Modified: [2]int64{st.Mtim.Sec, st.Mtim.Nsec}, Changed: [2]int64{st.Ctim.Sec, st.Ctim.Nsec},
	}
}

func identityAt(fd int) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Identity{}, err
	}
	return Identity{
		Device: st.Dev, Inode: st.Ino, Size: st.Size, Mode: st.Mode,
		Modified: [2]int64{st.Mtim.Sec, st.Mtim.Nsec}, Changed: [2]int64{st.Ctim.Sec, st.Ctim.Nsec},
	}, nil
}

// Touched is when the file was changed last.
func (i Identity) Touched() time.Time {
	m, c := time.Unix(i.Modified[0], i.Modified[1]), time.Unix(i.Changed[0], i.Changed[1])
	if m.After(c) {
		return m
	}
	return c
}

// ErrBusy says that somebody is writing the file.
var ErrBusy = errors.New("it is being written")

// Reading is how a file is to be read.
type Reading struct {
	// Done is set when its writer was heard to be done. It matters only where the file system cannot say whether a
	// file is open for writing.
	Done bool
	// Insist reads the file although it may be half written.
	Insist bool
	Now    time.Time
}

// Read reads a file, which must be a regular one and no link: nothing else is so much as opened. The error wraps ErrBusy
// while somebody writes the file.
func (r Reading) Read(path string) ([]byte, error) {
	handle, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer closeFd(handle)
	before, err := identityAt(handle)
	if err != nil {
		return nil, err
	}
	if err := regular(before); err != nil {
		return nil, err
	}
	// The same file that was looked at, whatever has its name by now.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer closeFd(fd)
	if !r.Insist && r.busy(fd, before) {
		return nil, ErrBusy
	}
	data, err := readAll(fd, before.Size)
	if err != nil {
		return nil, err
	}
	if after, err := identityAt(fd); err != nil || (after != before && !r.Insist) {
		return nil, errors.Join(err, ErrBusy)
	}
	return data, nil
}

// busy says whether somebody has the file open for writing. A read lease is given only while nobody has (fcntl(2)), which
// makes asking for one a question; it is given back at once, so that no writer waits for us. Where leases are not to be
// had, a file counts as being written when its writer was not heard to be done and it was touched just now.
func (r Reading) busy(fd int, id Identity) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		// Closing the file, which follows soon, gives it back just as well should this fail.
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	default:
		age := r.Now.Sub(id.Touched())
		return !r.Done && age >= 0 && age < Quiet
	}
}

func readAll(fd int, size int64) ([]byte, error) {
	buf := make([]byte, 0, min(size, MaxBytes)+512)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
		if len(buf) > MaxBytes {
			return nil, errTooLarge
		}
	}
}

var errTooLarge = fmt.Errorf("it is larger than the %d MiB that a manifest may have", MaxBytes>>20)

// regular says why a file of this identity is not read.
func regular(id Identity) error {
	switch id.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFIFO:
		return errors.New("it is a named pipe, not a regular file")
	case unix.S_IFSOCK:
		return errors.New("it is a socket, not a regular file")
	case unix.S_IFBLK, unix.S_IFCHR:
		return errors.New("it is a device, not a regular file")
	case unix.S_IFDIR:
		return errors.New("it is a folder, not a regular file")
	default:
		return errors.New("it is not a regular file")
	}
	if id.Size > MaxBytes {
		return errTooLarge
	}
	return nil
}

// closeFd closes what was only read, where a failure loses nothing.
func closeFd(fd int) { _ = unix.Close(fd) }
