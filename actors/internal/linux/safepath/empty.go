package safepath

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NotEmptyError is an error about a folder or file that is kept because it holds data.
type NotEmptyError struct{ Path string }

// Error implements error.
func (e *NotEmptyError) Error() string {
	return e.Path + " holds data although nothing is mounted there: it is kept; move the data away and the folder is removed"
}

// RemoveEmpty removes an empty directory, an empty file or a link at name. A missing name is not an error. Data is kept: the
// error is then a *NotEmptyError. A mount point is kept with all its content: the error is a *MountPointError.
func (r *Root) RemoveEmpty(name string) error {
	path := filepath.Join(r.path, name)
	if err := CheckName(name); err != nil || filepath.Clean(name) == "." {
		return &fs.PathError{Op: "remove", Path: path, Err: ErrBadName}
	}
	parent, err := r.open(filepath.Dir(filepath.Clean(name)), unix.O_PATH|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return &MountPointError{filepath.Dir(path)}
	}
	if err == nil {
		defer closeFD(parent)
		err = removeEmpty(parent, filepath.Base(path))
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return &NotEmptyError{path}
	case errors.Is(err, unix.EBUSY):
		return &MountPointError{path}
	}
	return &fs.PathError{Op: "remove", Path: path, Err: err}
}

func removeEmpty(at int, name string) error {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	var st unix.Statx_t // AT_STATX_DONT_SYNC avoids the server of a mounted file; its removal fails
	if err := unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC,
		unix.STATX_TYPE|unix.STATX_SIZE, &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFREG && st.Size == 0 || kind == unix.S_IFLNK {
		return unix.Unlinkat(at, name, 0)
	}
	return unix.ENOTEMPTY
}
