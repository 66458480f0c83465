package kinds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/stall"
)

// The mode bits that fsGroup adds to folders and files, and to those that containers only read.
const (
	groupFolder     = 0o770
	groupFile       = 0o660
	groupReadFolder = 0o550
	groupRead       = 0o440
)

// FSGroupOf returns the group that a pod gives its volumes to; nil: none.
func FSGroupOf(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// ownFolder sets a folder's mode and gives the folder to the pod's fsGroup, with the group's bits. Files made in it later
// belong to the group, too.
func ownFolder(p Folder, folder string, mode, groups fs.FileMode) error {
	if group := FSGroupOf(p.Pod); group != nil {
		if err := p.Chown(folder, -1, int(*group)); err != nil {
			return err
		}
		mode |= groups | fs.ModeSetgid
	}
	return p.Chmod(folder, mode)
}

// GroupChange is the progress of a change of a volume's group. It is safe for concurrent use.
type GroupChange struct {
	Folder string // of the volume, beginning with the pod's UID
	files  atomic.Int64
}

// Files returns the number of files, folders and links that have the group so far.
func (c *GroupChange) Files() int64 { return c.files.Load() }

// OwnVolume gives all files of a volume to the pod's fsGroup, if it has one, and sets the group's mode bits. New files belong
// to the group as well. The topmost folder is changed last, as the mark of a complete change. If it is correct, OwnVolume does
// nothing with the policy OnRootMismatch, or if an earlier process mounted the volume, because its pod may be running. Correct
// files are not written, so that a repeated change catches up. Each file counts as progress (stall.Progress), with a
// GroupChange. Links are not followed and cannot lead outside. OwnVolume returns when ctx ends, even if the file system hangs.
func OwnVolume(ctx context.Context, p Folder, folder string, earlier bool) error {
	group := FSGroupOf(p.Pod)
	if group == nil {
		return nil
	}
	policy := p.Pod.Spec.SecurityContext.FSGroupChangePolicy
	mayStay := earlier || policy != nil && *policy == v1.FSGroupChangeOnRootMismatch
	change := &GroupChange{Folder: filepath.Join(filepath.Base(p.Path()), folder)}
	key := fmt.Sprintf("the change of %s to fsGroup %d", change.Folder, *group)
	for {
		err := p.Bounded(ctx, p.Pod.Namespace+"/"+folder, key, func(pod *safepath.Root) error {
			return ownAll(ctx, pod, folder, *group, mayStay, change)
		})
		switch cut := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); {
		case errors.Is(err, safepath.ErrManyHang):
			return err
		case err == nil:
			return nil
		case !cut || ctx.Err() != nil:
			return fmt.Errorf("giving the volume to fsGroup %d: %w", *group, err)
		} // otherwise it joined an earlier walk, which was cut off
	}
}

func ownAll(ctx context.Context, pod *safepath.Root, folder string, group int64, mayStay bool, change *GroupChange) error {
	f, err := pod.OpenBeneath(folder, unix.O_RDONLY|unix.O_DIRECTORY, 0)
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
	if err != nil || mayStay && owned(top, group) {
		return err
	}
	for folders := []string{"."}; len(folders) > 0; {
		last := len(folders) - 1
		name := folders[last]
		below, err := ownFiles(ctx, root, name, group, change)
		if err != nil && (!IsAbsent(err) || name == ".") { // otherwise it was removed meanwhile
			return err
		}
		folders = append(folders[:last], below...)
	}
	return own(root, ".", top, group)
}

// batch is the number of directory entries that are read at a time.
const batch = 512

// ownFiles gives the entries of one folder to the group, and returns its subfolders.
func ownFiles(ctx context.Context, root *os.Root, folder string, group int64, change *GroupChange) (below []string, err error) {
	dir, err := root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // read only
	for {
		entries, readErr := dir.ReadDir(batch)
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			name := filepath.Join(folder, e.Name())
			info, err := e.Info()
			if err == nil {
				err = own(root, name, info, group)
			}
			if err != nil && !IsAbsent(err) { // otherwise it was removed meanwhile
				return nil, err
			}
			if e.IsDir() {
				below = append(below, name)
			}
			change.files.Add(1)
			stall.Progress(ctx, change)
		}
		if errors.Is(readErr, io.EOF) {
			return below, nil
		}
		if readErr != nil {
			return nil, readErr
		}
	}
}

// own sets the group and the mode bits of one file. A link has no mode of its own. A correct file is not written.
func own(root *os.Root, name string, info fs.FileInfo, group int64) error {
	st, known := info.Sys().(*syscall.Stat_t)
	link := info.Mode()&fs.ModeSymlink != 0
	mode := info.Mode() | groupFile
	if info.IsDir() {
		mode |= groupFolder | fs.ModeSetgid
	}
	if known && int64(st.Gid) == group && (link || mode == info.Mode()) {
		return nil
	}
	if err := root.Lchown(name, -1, int(group)); err != nil || link {
		return err
	}
	return root.Chmod(name, mode&(fs.ModePerm|fs.ModeSetgid|fs.ModeSetuid|fs.ModeSticky))
}

func owned(folder fs.FileInfo, group int64) bool {
	st, ok := folder.Sys().(*syscall.Stat_t)
	return ok && int64(st.Gid) == group && folder.Mode()&fs.ModeSetgid != 0 && folder.Mode()&groupFolder == groupFolder
}
