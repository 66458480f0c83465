// Package wholefile reads files that others write. It never returns a half-written file, and opens regular files only:
// opening a device or a pipe may have effects, or block.
package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

// MaxBytes is the maximum size of a file, as for manifests.
const MaxBytes = manifest.MaxBytes

// Quiet is how long a file that a writer holds open, and does not write to, is taken for one that is being written.
const Quiet = time.Second

// Identity identifies a version of a file. Equal identities mean equal contents, unless a change fell within the clock
// granularity of the file system, which is up to two seconds (FAT).
type Identity struct {
	Device, Inode     uint64
	Size              int64
	Modified, Changed [2]int64 // seconds and nanoseconds since 1970, of content and of anything
	Mode              uint32
}

// IdentityOf is the identity of a file that the os package described.
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

// Touched is when the file was changed last.
func (i Identity) Touched() time.Time {
	m, c := time.Unix(i.Modified[0], i.Modified[1]), time.Unix(i.Changed[0], i.Changed[1])
	if m.After(c) {
		return m
	}
	return c
}

// ErrBusy is returned while a process has the file open for writing.
var ErrBusy = errors.New("it is being written")

// Reading is how a file is to be read.
type Reading struct {
	// Done is true if the file's writer was observed closing it. It matters only on file systems that cannot report writers.
	Done bool
	// Insist reads the file although it may be half written.
	Insist bool
	Now    time.Time
}

// Read reads a regular file. It opens neither links nor other kinds of files. The error wraps ErrBusy while a process has the
// file open for writing.
func (r Reading) Read(path string) (data []byte, err error) {
	defer func() {
		if e, ok := errors.AsType[*fs.PathError](err); ok { // the caller names the path
			err = e.Err
		}
	}()
	handle, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer closeRead(handle)
	before, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	if err := regular(before); err != nil {
		return nil, err
	}
	// The same file that was looked at, whatever has its name by now.
	same := "/proc/self/fd/" + strconv.Itoa(int(handle.Fd()))
	f, err := os.OpenFile(same, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer closeRead(f)
	if !r.Insist && r.busy(f.Fd(), IdentityOf(before)) {
		return nil, ErrBusy
	}
	if data, err = readAll(f); err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !r.Insist && IdentityOf(after) != IdentityOf(before) {
		return nil, errors.Join(err, ErrBusy)
	}
	return data, nil
}

// busy reports whether a process has the file open for writing. The kernel grants a read lease only without writers
// (fcntl(2)). The lease is released at once, so that no writer blocks. Without leases, a recently changed file counts as busy
// until its writer is observed closing it.
func (r Reading) busy(fd uintptr, id Identity) bool {
	_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		// Closing the file, which follows soon, gives it back just as well should this fail.
		_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	default:
		age := r.Now.Sub(id.Touched())
		return !r.Done && age >= 0 && age < Quiet
	}
}

func readAll(f io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if len(data) > MaxBytes {
		err = errTooLarge
	}
	return data, err
}

var errTooLarge = fmt.Errorf("it is larger than the %d MiB that a manifest may have", MaxBytes>>20)

// regular returns an error unless the file is regular and at most MaxBytes long.
func regular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("it is a named pipe, not a regular file")
	case mode&fs.ModeSocket != 0:
		return errors.New("it is a socket, not a regular file")
	case mode&fs.ModeDevice != 0:
		return errors.New("it is a device, not a regular file")
	case mode.IsDir():
		return errors.New("it is a folder, not a regular file")
	default:
		return errors.New("it is not a regular file")
	}
	if info.Size() > MaxBytes {
		return errTooLarge
	}
	return nil
}

// closeRead closes a file that was only read, so that an error loses nothing.
func closeRead(f *os.File) { _ = f.Close() }
