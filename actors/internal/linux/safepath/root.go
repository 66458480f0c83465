// Package safepath opens, makes and removes files in places that a pod can influence. Everything is done relative to
// a directory descriptor and resolved by openat2(2), so that a symbolic link swapped in at any moment leads nowhere
// else (CVE-2017-1002101, CVE-2021-25741), and nothing is ever removed across a mount point.
//
// os.Root and pathrs-lite do not serve: both follow links inside of the root, where files of the agent and of other pods lie, and
// neither stops at mount points, across which os.Root.RemoveAll removes.
//
// It needs Linux 5.6 for openat2; on older kernels every call fails with errors.ErrUnsupported.
package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is an open directory. Names given to its methods are relative, slash-separated paths below it; a symbolic
// link anywhere in one is an error, and so is "..". Safe for concurrent use, as a descriptor is.
type Root struct {
	dir   *os.File
	path  string
	owner Owner // zero: unknown
}

// OpenRoot opens the directory at path. The path itself is trusted (it is the operator's): links in it are followed.
func OpenRoot(path string) (*Root, error) {
	fd, err := openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_DIRECTORY | unix.O_RDONLY})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Root{dir: os.NewFile(uintptr(fd), path), path: path}, nil
}

// Close closes the directory. Files opened through it stay open.
func (r *Root) Close() error { return r.dir.Close() }

// Path is the path it was opened by. It is for messages and for handing on, not for opening again.
func (r *Root) Path() string { return r.path }

// Sub opens a directory below this one as a root of its own.
func (r *Root) Sub(name string) (*Root, error) {
	f, err := r.OpenBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Root{dir: f, path: f.Name()}, nil
}

// OpenBeneath opens the file at name below the root, with the flags of open(2) and, if they create it, the mode less the umask. A
// link anywhere in the name, also as its last element, is an error that wraps unix.ELOOP. Leaving the root is an error that wraps
// unix.EXDEV. Mount points below the root may be crossed. To open a FIFO without blocking, use unix.O_NONBLOCK or unix.O_PATH.
func (r *Root) OpenBeneath(name string, flags int, mode fs.FileMode) (*os.File, error) {
	return r.file(name, flags, mode, beneath)
}

// file opens name with the RESOLVE_ flags given.
func (r *Root) file(name string, flags int, mode fs.FileMode, resolve uint64) (*os.File, error) {
	path := filepath.Join(r.path, name)
	err := CheckName(name)
	if err == nil {
		var fd int
		if fd, err = r.resolve(name, flags, mode, resolve); err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

// Lstat describes the file at name. It does not follow a link that is the last element.
func (r *Root) Lstat(name string) (fs.FileInfo, error) {
	f, err := r.OpenBeneath(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Close())
}

// Names lists the directory at name, unsorted; the root itself when name is ".".
func (r *Root) Names(name string) ([]string, error) {
	f, err := r.OpenBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

// Chmod sets the permission bits of the file or directory at name exactly, regardless of the umask.
func (r *Root) Chmod(name string, mode fs.FileMode) error {
	f, err := r.OpenBeneath(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// MkdirAll creates the directory at name and its missing parents with exactly this mode. Existing directories are unchanged. A
// file or a link in the path is an error.
func (r *Root) MkdirAll(name string, mode fs.FileMode) error {
	if err := CheckName(name); err != nil {
		return &fs.PathError{Op: "mkdir", Path: filepath.Join(r.path, name), Err: err}
	}
	defer runtime.KeepAlive(r.dir) // its descriptor is in use
	at, path, own := int(r.dir.Fd()), r.path, -1
	defer func() { closeFD(own) }()
	for _, element := range strings.Split(filepath.Clean(name), "/") {
		path = filepath.Join(path, element)
		fd, err := mkdirAt(at, element, mode)
		if err != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		closeFD(own)
		at, own = fd, fd
	}
	return nil
}

// mkdirAt makes the directory if it is not there, and opens it.
func mkdirAt(at int, name string, mode fs.FileMode) (int, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW, Resolve: beneath}
	fd, err := openat2(at, name, &how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	err = unix.Mkdirat(at, name, uint32(mode.Perm()))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	made := err == nil
	fd, err = openat2(at, name, &how)
	if err != nil || !made {
		return fd, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Uid != uint32(os.Geteuid()) { //nolint:gosec // an ID is never negative
		return fd, err // another process replaced the new folder; the mode of its folder is not changed
	}
	if err := unix.Fchmod(fd, kernelMode(mode)); err != nil {
		closeFD(fd)
		return -1, err
	}
	return fd, nil
}

// kernelMode is the mode of a folder as chmod(2) has it.
func kernelMode(mode fs.FileMode) uint32 {
	out := uint32(mode.Perm())
	if mode&fs.ModeSetgid != 0 {
		out |= unix.S_ISGID
	}
	if mode&fs.ModeSticky != 0 {
		out |= unix.S_ISVTX
	}
	return out
}

// ErrBadName is wrapped by the error about a name that is empty, absolute, or steps back.
var ErrBadName = errors.New("not a plain relative path")

// CheckName returns an error unless name can be a path below a root: relative, not empty, without ".." and zero bytes.
func CheckName(name string) error {
	if name == "" || filepath.IsAbs(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q is %w", name, ErrBadName)
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return fmt.Errorf("%q is %w", name, ErrBadName)
	}
	return nil
}

// CheckElement returns an error unless name can be one element of a path: as CheckName, without "/", and not ".".
func CheckElement(name string) error {
	if strings.Contains(name, "/") || name == "." {
		return fmt.Errorf("%q is %w of one element", name, ErrBadName)
	}
	return CheckName(name)
}

// beneath is how everything below a root is resolved.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// attempts limits the retries of a resolution that a concurrent rename or mount disturbed (EAGAIN).
const attempts = 128

// open resolves name below the root; extra are further RESOLVE_ flags.
func (r *Root) open(name string, flags int, mode fs.FileMode, extra uint64) (int, error) {
	return r.resolve(name, flags, mode, beneath|extra)
}

// resolve is open with all the RESOLVE_ flags given.
func (r *Root) resolve(name string, flags int, mode fs.FileMode, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: resolve} //nolint:gosec // flags are no negative number
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm()) // openat2 refuses a mode for an existing file
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
