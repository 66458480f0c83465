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

// Follow opens the file that name resolves to below the root, with O_PATH: for passing on, not for reading. Links are followed
// if they stay below the root. A link that leaves the root or is absolute is an error that wraps unix.EXDEV, even if names are
// swapped concurrently. If the root is "/", links may be absolute, since they cannot leave it.
func (r *Root) Follow(name string) (*os.File, error) {
	return r.file(name, unix.O_PATH, 0, r.within())
}

// within returns the RESOLVE_ flags for following links.
func (r *Root) within() uint64 {
	if filepath.Clean(r.path) == "/" {
		return unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	}
	return unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
}

// FollowMkdir is like Follow, and creates missing folders with this mode, including its set-group-ID and sticky bits. Folders
// are created beneath the last existing folder, never through a link.
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

// nearest opens the last existing folder of the path, and returns the missing elements.
func (r *Root) nearest(elements []string) (fd int, missing []string, err error) {
	for n := len(elements) - 1; n >= 0; n-- {
		prefix := filepath.Join(append([]string{"."}, elements[:n]...)...)
		if fd, err = r.resolve(prefix, unix.O_PATH|unix.O_DIRECTORY, 0, r.within()); !errors.Is(err, unix.ENOENT) {
			return fd, elements[n:], err
		}
	}
	return -1, nil, err
}

// OpenFollowing opens the regular file that name resolves to below the root, for reading. Links are followed as by Follow, but
// not to other file systems: a container may have mounted one that never answers. Any other type of file is an error that wraps
// unix.EINVAL. It is not opened, because opening a device or a pipe may have effects or block.
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
	// Reopen the checked file by its descriptor: its name may belong to another file by now.
	return os.OpenFile(descriptor(int(handle.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
