package safepath

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Chown sets the owner and the group of the file or directory at name. An ID of -1 leaves the owner or group unchanged.
func (r *Root) Chown(name string, uid, gid int) error {
	f, err := r.OpenBeneath(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chown(uid, gid), f.Close())
}

// Lchown sets the owner and the group of the file, or of the link itself, at name. An ID of -1 leaves the owner or group
// unchanged.
func (r *Root) Lchown(name string, uid, gid int) error {
	return r.inParent("lchown", name, func(at int, last string) error {
		return unix.Fchownat(at, last, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// Symlink creates a link to target at name. The target is not checked: methods that follow links do not leave the root.
func (r *Root) Symlink(target, name string) error {
	return r.inParent("symlink", name, func(at int, last string) error { return unix.Symlinkat(target, at, last) })
}

// Readlink returns the target of the link at name.
func (r *Root) Readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n := 0
	err := r.inParent("readlink", name, func(at int, last string) (err error) {
		n, err = unix.Readlinkat(at, last, buf)
		return err
	})
	return string(buf[:max(n, 0)]), err
}

// Rename gives the file at from the name to, replacing an existing file. Both names must be in the same directory, so that
// neither can be moved away during the call.
func (r *Root) Rename(from, to string) error {
	return r.rename(from, to, func(at int, first, last string) error { return unix.Renameat(at, first, at, last) })
}

// RenameNew is like Rename, but an existing file at to is an error that wraps unix.EEXIST.
func (r *Root) RenameNew(from, to string) error {
	return r.rename(from, to, func(at int, first, last string) error {
		err := unix.Renameat2(at, first, at, last, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return err
		}
		// Some file systems, e.g. NFS, lack RENAME_NOREPLACE. A hard link also fails if the name exists.
		if err := unix.Linkat(at, first, at, last, 0); err != nil {
			return err
		}
		return unix.Unlinkat(at, first, 0)
	})
}

func (r *Root) rename(from, to string, do func(at int, first, last string) error) error {
	last := filepath.Base(to)
	err := CheckElement(last)
	if filepath.Dir(filepath.Clean(from)) != filepath.Dir(filepath.Clean(to)) {
		err = ErrBadName
	}
	if err != nil {
		return &fs.PathError{Op: "rename", Path: filepath.Join(r.path, to), Err: err}
	}
	return r.inParent("rename", from, func(at int, first string) error { return do(at, first, last) })
}

// Unlink removes the file or link at name. It does not remove directories.
func (r *Root) Unlink(name string) error {
	return r.inParent("unlink", name, func(at int, last string) error { return unix.Unlinkat(at, last, 0) })
}

// inParent calls do with the open parent directory of name, and the last element of name.
func (r *Root) inParent(op, name string, do func(at int, last string) error) error {
	dir, last := filepath.Split(filepath.Clean(name))
	err := CheckName(name)
	if err == nil {
		err = CheckElement(last)
	}
	if err == nil {
		var at int
		if at, err = r.open(filepath.Clean(dir), unix.O_PATH|unix.O_DIRECTORY, 0, 0); err == nil {
			defer closeFD(at)
			err = do(at, last)
		}
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: filepath.Join(r.path, name), Err: err}
	}
	return nil
}
