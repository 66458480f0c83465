package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Follow opens what name leads to below the root, to be handed on and not to be read (O_PATH). Links are followed as far
// as they stay below: one that leads out, or that is absolute, is an error that wraps unix.EXDEV, whoever swaps what
// meanwhile. Only where the root is the machine's own may a link be absolute, as that leads nowhere else.
func (r *Root) Follow(name string) (*os.File, error) {
	return r.file(name, unix.O_PATH, 0, r.within())
}

// within is how links are followed.
func (r *Root) within() uint64 {
	if filepath.Clean(r.path) == "/" {
		return unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	}
	return unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
}

// FollowMkdir is Follow, and makes what is missing of name as folders of that mode, its set-group-ID and sticky bits
// included. What is made is made beneath the last folder that was there, and never through a link.
func (r *Root) FollowMkdir(name string, mode fs.FileMode) (*os.File, error) {
	f, err := r.Follow(name)
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	elements := strings.Split(filepath.Clean(name), "/")
	at, missing, err := r.nearest(elements)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(r.path, name), Err: err}
	}
	defer func() { closeFD(at) }()
	for _, element := range missing {
		fd, err := mkdirAt(at, element, mode)
		if err != nil {
			return nil, &fs.PathError{Op: "mkdir", Path: filepath.Join(r.path, name), Err: err}
		}
		closeFD(at)
		at = fd
	}
	f = os.NewFile(uintptr(at), filepath.Join(r.path, name))
	at = -1
	return f, nil
}

// nearest opens the last folder on the way that is there, and says what is missing.
func (r *Root) nearest(elements []string) (fd int, missing []string, err error) {
	for n := len(elements) - 1; n >= 0; n-- {
		prefix := filepath.Join(append([]string{"."}, elements[:n]...)...)
		if fd, err = r.resolve(prefix, unix.O_PATH|unix.O_DIRECTORY, 0, r.within()); !errors.Is(err, unix.ENOENT) {
			return fd, elements[n:], err
		}
	}
	return -1, nil, err
}

// OpenFollowing opens the regular file that name leads to below the root, for reading. Links are followed as Follow does,
// but to no other file system, which a container may have mounted and may leave unanswered; anything else than a regular
// file is an error that wraps unix.EINVAL, and is never opened: a device or a pipe may act, or block.
func (r *Root) OpenFollowing(name string) (*os.File, error) {
	handle, err := r.file(name, unix.O_PATH, 0, r.within()|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return nil, err
	}
	defer handle.Close() //nolint:errcheck // nothing was written
	info, err := handle.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is no regular file: %w", unix.EINVAL)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: handle.Name(), Err: err}
	}
	// The same file that was looked at, whatever has its name by now.
	return os.OpenFile(descriptor(int(handle.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
