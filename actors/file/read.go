package file

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

// maxManifest is the size in bytes above which a manifest is not read.
const maxManifest = manifest.MaxBytes

// identity tells whether a file was touched: as long as it stays the same, so does the content, but for a change within
// the granularity of the file system's clock; see trustAfter.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime [2]int64
	mode         uint32
}

// identityOf is the identity of a file that os.Lstat described.
func identityOf(info fs.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{
		dev: st.Dev, ino: st.Ino, size: st.Size, mode: st.Mode,
		mtime: [2]int64{st.Mtim.Sec, st.Mtim.Nsec}, ctime: [2]int64{st.Ctim.Sec, st.Ctim.Nsec},
	}
}

func identityAt(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	return identity{
		dev: st.Dev, ino: st.Ino, size: st.Size, mode: st.Mode,
		mtime: [2]int64{st.Mtim.Sec, st.Mtim.Nsec}, ctime: [2]int64{st.Ctim.Sec, st.Ctim.Nsec},
	}, nil
}

// touched is when the file was changed last.
func (i identity) touched() time.Time {
	m, c := time.Unix(i.mtime[0], i.mtime[1]), time.Unix(i.ctime[0], i.ctime[1])
	if m.After(c) {
		return m
	}
	return c
}

// errBusy says that somebody is writing the file.
var errBusy = errors.New("it is being written")

// reading is how a manifest is to be read.
type reading struct {
	// done is set when its writer was heard to be done. It matters only where the file system cannot say whether a
	// file is open for writing.
	done bool
	// insist reads the file although it may be half written.
	insist bool
	now    time.Time
}

// read reads a manifest, which must be a regular file: nothing else is so much as opened, since opening a device or a
// pipe may act or block. The error is errBusy while somebody writes the file.
func (r reading) read(path string) ([]byte, error) {
	handle, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer closeFd(handle)
	before, err := identityAt(handle)
	if err != nil {
		return nil, err
	}
	if err := manifestLike(before); err != nil {
		return nil, err
	}
	// The same file that was looked at, whatever has its name by now.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer closeFd(fd)
	if !r.insist && r.busy(fd, before) {
		return nil, errBusy
	}
	data, err := readAll(fd, before.size)
	if err != nil {
		return nil, err
	}
	if after, err := identityAt(fd); err != nil || (after != before && !r.insist) {
		return nil, errors.Join(err, errBusy)
	}
	return data, nil
}

// busy says whether somebody has the file open for writing. A read lease is given only while nobody has (fcntl(2)), which
// makes asking for one a question; it is given back at once, so that no writer waits for us. Where leases are not to be
// had, a file counts as being written when its writer was not heard to be done and it was touched just now.
func (r reading) busy(fd int, id identity) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		// Closing the file, which follows soon, gives it back just as well should this fail.
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	case errors.Is(err, unix.EAGAIN):
		return true
	default:
		age := r.now.Sub(id.touched())
		return !r.done && age >= 0 && age < quietWhileWritten
	}
}

func readAll(fd int, size int64) ([]byte, error) {
	buf := make([]byte, 0, min(size, maxManifest)+512)
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
		if len(buf) > maxManifest {
			return nil, errTooLarge
		}
	}
}

var errTooLarge = fmt.Errorf("it is larger than the %d MiB that a manifest may have", maxManifest>>20)

// manifestLike says why a file of this identity cannot be a manifest.
func manifestLike(id identity) error {
	switch id.mode & unix.S_IFMT {
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
	if id.size > maxManifest {
		return errTooLarge
	}
	return nil
}

// closeFd closes what was only read, where a failure loses nothing.
func closeFd(fd int) { _ = unix.Close(fd) }
