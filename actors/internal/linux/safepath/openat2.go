package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"golang.org/x/sys/unix"
)

// beneath is how everything below a root is resolved.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// attempts bounds how often a resolution is tried again that a concurrent rename or mount upset (EAGAIN): who renames
// without end gets an error, not our time.
const attempts = 128

// open resolves name below the root; extra are further RESOLVE_ flags.
func (r *Root) open(name string, flags int, mode fs.FileMode, extra uint64) (int, error) {
	return r.resolve(name, flags, mode, beneath|extra)
}

// resolve is open with all the RESOLVE_ flags given.
func (r *Root) resolve(name string, flags int, mode fs.FileMode, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: resolve} //nolint:gosec // flags are no negative number
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm()) // openat2 refuses a mode for what is not created
	}
	defer runtime.KeepAlive(r.dir) // its descriptor is in use
	return openat2(int(r.dir.Fd()), name, &how)
}

// openat2 is openat2(2), close-on-exec, tried again when it was interrupted or upset.
func openat2(at int, name string, how *unix.OpenHow) (int, error) {
	how.Flags |= unix.O_CLOEXEC
	var err error
	for range attempts {
		var fd int
		fd, err = unix.Openat2(at, name, how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf("this kernel has no openat2 (Linux 5.6): %w", errors.Join(errors.ErrUnsupported, err))
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			return -1, err
		}
	}
	return -1, err
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd) // opened for reading: there is nothing that closing could lose
	}
}
