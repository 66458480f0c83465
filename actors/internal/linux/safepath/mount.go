package safepath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mount mounts a new file system of type kind on the directory at name, with the mount(8) options of that type. The directory
// is held by a descriptor, so that the mount cannot be redirected.
func (r *Root) Mount(name, kind, options string) error {
	return r.onto(name, func(place string) error { return unix.Mount(kind, place, kind, 0, options) })
}

// Remount changes the options of the file system that is mounted on name.
func (r *Root) Remount(name, options string) error {
	return r.onto(name, func(place string) error { return unix.Mount("", place, "", unix.MS_REMOUNT, options) })
}

// SetReadOnly makes the topmost mount on name read-only. Its other options and other mounts of the file system stay.
func (r *Root) SetReadOnly(name string) error {
	f, err := r.OpenBeneath(name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(int(f.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return &fs.PathError{Op: "mount_setattr", Path: filepath.Join(r.path, name), Err: err}
	}
	return nil
}

// BindFrom bind-mounts the file or directory of a descriptor on name, which must be of the same type. As in the kubelet, mounts
// in the directory are not included. Later mounts there are propagated to name if the source mount is shared. Unless passOn is
// set, mounts and unmounts at name are not propagated to the source (mount_namespaces(7)).
func (r *Root) BindFrom(fd uintptr, name string, passOn bool) error {
	err := r.onto(name, func(place string) error {
		return unix.Mount(descriptor(int(fd)), place, "", unix.MS_BIND, "")
	})
	if err != nil || passOn {
		return err
	}
	return r.Receive(name)
}

// Receive stops the mount on name, and all mounts in it, from propagating events to their sources. They still receive events.
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

// Unmount undoes the topmost mount on name. If nothing is mounted there, the error wraps unix.EINVAL. If the mount is in use,
// the error wraps unix.EBUSY.
func (r *Root) Unmount(name string) error {
	return r.inParent("unmount", name, func(at int, last string) error {
		return unix.Unmount(descriptor(at)+"/"+last, unix.UMOUNT_NOFOLLOW)
	})
}

// Detach undoes the topmost mount on name and all mounts in it, without effect elsewhere. Open files keep the file system alive
// until they are closed. Detach also works if the server is dead or hung. If nothing is mounted there, the error wraps
// unix.EINVAL.
func (r *Root) Detach(name string) error {
	// Without Receive, the unmounts of inner mounts would be propagated to the mounts of others.
	ctx, cancel := context.WithTimeout(context.Background(), ServerTimeout)
	defer cancel()
	path := filepath.Join(r.path, name)
	err := r.Bounded(ctx, path, "detaching "+path, func(own *Root) error { return own.Receive(name) })
	if err != nil && !IsDead(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return r.inParent("unmount", name, func(at int, last string) error {
		return unix.Unmount(descriptor(at)+"/"+last, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	})
}

// IsMountPoint reports whether something is mounted on name, including a bind mount of the same file system. It calls no
// server: the kernel refuses to cross the mount first.
func (r *Root) IsMountPoint(name string) (is bool, err error) {
	err = r.inParent("look at", name, func(at int, last string) error {
		fd, err := openat2(at, last, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW,
			Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		if is = errors.Is(err, unix.EXDEV); is {
			return nil
		}
		closeFD(fd)
		return err
	})
	return is, err
}

// descriptor returns a path of the file that a descriptor refers to, even if the file's original path changes.
func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
