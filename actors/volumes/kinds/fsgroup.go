package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The bits that fsGroup adds to the modes of folders and files, and of those that containers only read.
const (
	groupFolder     = 0o770
	groupFile       = 0o660
	groupReadFolder = 0o550
	groupRead       = 0o440
)

// FSGroupOf is the group that a pod gives its volumes to; nil: none.
func FSGroupOf(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// ownFolder sets a folder's mode and gives the folder to the pod's fsGroup, with the group's bits. Files made in it later belong
// to the group, too.
func ownFolder(p Folder, folder string, mode, groups fs.FileMode) error {
	if group := FSGroupOf(p.Pod); group != nil {
		if err := p.Chown(folder, -1, int(*group)); err != nil {
			return err
		}
		mode |= groups | fs.ModeSetgid
	}
	return p.Chmod(folder, mode)
}

// OwnVolume gives all of a volume to the pod's fsGroup, where it has one: the group, and its bits of the mode. What is made in a
// folder later is the group's, too. With the policy OnRootMismatch nothing is done where the topmost folder is as it has to be,
// which is done last, so that a change that was cut off is seen; nor is it where an earlier process mounted the volume, since its
// pod may run. Links are not followed, and nothing outside is reached.
func OwnVolume(ctx context.Context, p Folder, folder string, earlier bool) error {
	group := FSGroupOf(p.Pod)
	if group == nil {
		return nil
	}
	f, err := p.OpenBeneath(folder, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	top, err := root.Lstat(".")
	if err != nil {
		return err
	}
	policy := p.Pod.Spec.SecurityContext.FSGroupChangePolicy
	if owned(top, *group) && (earlier || policy != nil && *policy == v1.FSGroupChangeOnRootMismatch) {
		return nil
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err == nil && name != "." {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				err = own(root, name, info, *group)
			}
		}
		if IsAbsent(err) && name != "." {
			return nil // it went meanwhile
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("giving the volume to fsGroup %d: %w", *group, err)
	}
	return own(root, ".", top, *group)
}

// own gives one file to the group; of a link only who owns it.
func own(root *os.Root, name string, info fs.FileInfo, group int64) error {
	if err := root.Lchown(name, -1, int(group)); err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	mode := info.Mode() | groupFile
	if info.IsDir() {
		mode |= groupFolder | fs.ModeSetgid
	}
	return root.Chmod(name, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSetuid|fs.ModeSticky))
}

func owned(folder fs.FileInfo, group int64) bool {
	st, ok := folder.Sys().(*syscall.Stat_t)
	return ok && int64(st.Gid) == group && folder.Mode()&fs.ModeSetgid != 0 && folder.Mode()&groupFolder == groupFolder
}
