package safepath

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mount mounts a new file system of that type on the directory at name, with the options of mount(8) that the type knows.
// The place is held by a descriptor: nobody can move the mount elsewhere.
func (r *Root) Mount(name, kind, options string) error {
	return r.onto(name, func(place string) error { return unix.Mount(kind, place, kind, 0, options) })
}

// Remount changes the options of the file system that is mounted on name.
func (r *Root) Remount(name, options string) error {
	return r.onto(name, func(place string) error { return unix.Mount("", place, "", unix.MS_REMOUNT, options) })
}

// BindFrom makes what a descriptor stands for, a file or a directory, appear at name, which must be of the same sort.
// What is mounted in a directory does not come along, as with the kubelet; what is mounted there later does where the
// mount is shared. Unless passOn is set, nothing goes the other way: what is mounted, or unmounted, at name is not seen
// where it came from (mount_namespaces(7)).
func (r *Root) BindFrom(fd uintptr, name string, passOn bool) error {
	err := r.onto(name, func(place string) error {
		return unix.Mount(descriptor(int(fd)), place, "", unix.MS_BIND, "")
	})
	if err != nil || passOn {
		return err
	}
	return r.Receive(name)
}

// Receive has the mount on name, and those in it, pass on nothing to where they came from.
func (r *Root) Receive(name string) error {
	return r.onto(name, func(place string) error { return unix.Mount("", place, "", unix.MS_SLAVE|unix.MS_REC, "") })
}

func (r *Root) onto(name string, mount func(place string) error) error {
	f, err := r.OpenBeneath(name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	if err := mount(descriptor(int(f.Fd()))); err != nil {
		return errors.Join(fmt.Errorf("mounting on %s: %w", filepath.Join(r.path, name), err), f.Close())
	}
	return f.Close()
}

// Unmount undoes the topmost mount on name. Nothing mounted there is an error that wraps unix.EINVAL, a mount in use one
// that wraps unix.EBUSY.
func (r *Root) Unmount(name string) error {
	return r.inParent("unmount", name, func(at int, last string) error {
		return unix.Unmount(descriptor(at)+"/"+last, unix.UMOUNT_NOFOLLOW)
	})
}

// Detach undoes the topmost mount on name, with all that is mounted in it, and nothing elsewhere: what is in use goes when
// it is used no more. Nothing mounted there is an error that wraps unix.EINVAL.
func (r *Root) Detach(name string) error {
	// Otherwise the end of what is mounted in it would be passed on to where it was mounted by others.
	if err := r.Receive(name); err != nil {
		return err
	}
	return r.inParent("unmount", name, func(at int, last string) error {
		return unix.Unmount(descriptor(at)+"/"+last, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	})
}

// IsMountPoint says whether something is mounted on name, a bind mount of the same file system included, and of which
// type it is (statfs(2)); of a dead file system, whose server has gone, the type is 0.
func (r *Root) IsMountPoint(name string) (is bool, kind int64, err error) {
	f, err := r.OpenBeneath(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, 0, err
	}
	fd := int(f.Fd())
	var stat unix.Statx_t
	var fs unix.Statfs_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &stat)
	if unix.Fstatfs(fd, &fs) != nil {
		fs.Type = 0
	}
	err = errors.Join(err, f.Close())
	if err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = fmt.Errorf("this kernel does not say what is mounted (Linux 5.8): %w", errors.ErrUnsupported)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, int64(fs.Type), err // an int32 elsewhere
}

// descriptor is a path that leads to what a descriptor stands for, whatever becomes of the path it was opened by.
func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
