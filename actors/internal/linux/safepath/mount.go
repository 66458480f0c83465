package safepath

import (
	"context"
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

// Detach undoes the topmost mount on name, with all that is mounted in it, and nothing elsewhere. Open files keep it alive
// until they are closed. A dead or hung server is no obstacle. Nothing mounted there is an error that wraps unix.EINVAL.
func (r *Root) Detach(name string) error {
	// Otherwise the end of what is mounted in it would be passed on to where it was mounted by others.
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

// IsMountPoint reports whether something is mounted on name, a bind mount of the same file system included. It asks no
// file system: the kernel refuses to cross the mount before the server is asked.
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

// descriptor is a path that leads to what a descriptor stands for, whatever becomes of the path it was opened by.
func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
