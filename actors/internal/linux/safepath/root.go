// Package safepath opens, creates and removes files in folders that a pod can modify. All operations are relative to a
// directory descriptor and resolved by openat2(2). A symbolic link that is swapped in at any moment cannot redirect them
// (CVE-2017-1002101, CVE-2021-25741), and removals never cross a mount point.
//
// os.Root and pathrs-lite do not suffice. Both follow links inside the root, which also contains files of the agent and of
// other pods. Neither stops at mount points: os.Root.RemoveAll removes files across them.
//
// The package needs openat2 (Linux 5.6). On older kernels every call fails with errors.ErrUnsupported.
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

// Root is an open directory. The names passed to its methods are relative, slash-separated paths below it. A symbolic link in a
// name is an error, unless the method is documented to follow links. ".." in a name is an error. Root is safe for concurrent
// use.
type Root struct {
	dir   *os.File
	path  string
	owner Owner // zero: unknown
}

// OpenRoot opens the directory at path. The path is the operator's and therefore trusted: links in it are followed.
func OpenRoot(path string) (*Root, error) {
	fd, err := openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_DIRECTORY | unix.O_RDONLY})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Root{dir: os.NewFile(uintptr(fd), path), path: path}, nil
}

// Close closes the directory. Files opened through it stay open.
func (r *Root) Close() error { return r.dir.Close() }

// Path returns the path by which the root was opened. It is for messages and for passing on, not for opening the root again.
func (r *Root) Path() string { return r.path }

// Sub opens a directory below r as a new root.
func (r *Root) Sub(name string) (*Root, error) {
	f, err := r.OpenBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Root{dir: f, path: f.Name()}, nil
}

// OpenBeneath opens the file at name below the root, with the flags of open(2) and, if they create it, the mode less the umask.
// A link anywhere in the name, also as its last element, is an error that wraps unix.ELOOP. Leaving the root is an error that
// wraps unix.EXDEV. Mount points below the root may be crossed. To open a FIFO without blocking, use unix.O_NONBLOCK or
// unix.O_PATH.
func (r *Root) OpenBeneath(name string, flags int, mode fs.FileMode) (*os.File, error) {
	return r.file(name, flags, mode, beneath)
}

// file opens name with the given RESOLVE_ flags.
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

// Names lists the directory at name, unsorted. The name "." is the root itself.
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

// mkdirAt opens the directory, and creates it first if it is missing.
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

// kernelMode returns the mode of a folder in the encoding of chmod(2).
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

// ErrBadName is wrapped by errors about names that CheckName or CheckElement rejects.
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

// CheckElement returns an error unless name can be one element of a path: like CheckName, but without "/" and not ".".
func CheckElement(name string) error {
	if strings.Contains(name, "/") || name == "." {
		return fmt.Errorf("%q is %w of one element", name, ErrBadName)
	}
	return CheckName(name)
}

// beneath are the RESOLVE_ flags for names below a root.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// attempts limits the retries of a resolution that a concurrent rename or mount disturbed (EAGAIN).
const attempts = 128

// open resolves name below the root. It adds the extra RESOLVE_ flags to beneath.
func (r *Root) open(name string, flags int, mode fs.FileMode, extra uint64) (int, error) {
	return r.resolve(name, flags, mode, beneath|extra)
}

// resolve is like open, with exactly the given RESOLVE_ flags.
func (r *Root) resolve(name string, flags int, mode fs.FileMode, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: resolve} //nolint:gosec // flags are no negative number
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm()) // openat2 rejects a mode without O_CREAT
	}
	defer runtime.KeepAlive(r.dir) // its descriptor is in use
	return openat2(int(r.dir.Fd()), name, &how)
}

// openat2 calls openat2(2) with O_CLOEXEC. It retries a call that was interrupted (EINTR) or disturbed (EAGAIN).
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
		_ = unix.Close(fd) // opened for reading: closing it cannot lose data
	}
}
