package kinds

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// StillMounted returns an error that names the mounts.
func StillMounted(mounts []*mountinfo.Info) error {
	return fmt.Errorf("still mounted, so nothing of its folder is removed: %s", mountNames(mounts))
}

func mountNames(mounts []*mountinfo.Info) string {
	var names []string
	for _, m := range mounts {
		names = append(names, fmt.Sprintf("%s (%s)", m.Mountpoint, m.FSType))
	}
	return strings.Join(names, ", ")
}

// MountsIn returns the mounts on the pod's folder and below it. Their paths begin with the folder's path.
func MountsIn(folder Folder) ([]*mountinfo.Info, error) {
	resolved, err := filepath.EvalSymlinks(folder.Path())
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	for _, m := range mounts {
		m.Mountpoint = folder.Path() + strings.TrimPrefix(m.Mountpoint, resolved)
	}
	return mounts, nil
}

// HasMount reports whether something is mounted at a path of the host, which is false outside the pod's folder. It asks no
// server.
func (f Folder) HasMount(path string) (bool, error) {
	name, inside := strings.CutPrefix(path, f.Path()+"/")
	if !inside {
		return false, nil
	}
	is, err := f.IsMountPoint(name)
	return is, IgnoreAbsent(err)
}

// Foreign returns the mounts on the folder of a volume and below it that its kind did not make. A kind mounts one whole file
// system of memory on the folder, or any file system at a path of its own (Mounter). A bind of a part of a file system of
// memory is foreign. A mount that the kernel makes inside an NFS volume is not.
func Foreign(mounts []*mountinfo.Info, folder Folder, p Plugin, f FoundVolume) []*mountinfo.Info {
	at, own := filepath.Join(folder.Path(), f.path()), ""
	if m, ok := p.(Mounter); ok {
		own = filepath.Join(folder.Path(), m.MountsAt(f.Volume))
	}
	var on, below []*mountinfo.Info
	for _, m := range mounts {
		switch {
		case m.Mountpoint == own, isBelow(m, own) && isSubmount(p, m):
		case m.Mountpoint == at:
			on = append(on, m)
		case isBelow(m, at):
			below = append(below, m)
		}
	}
	if isWholeMemory(on) && p.InMemory(folder, f.Volume) {
		return below
	}
	return append(on, below...)
}

func isBelow(m *mountinfo.Info, at string) bool { return strings.HasPrefix(m.Mountpoint, at+"/") }

// isWholeMemory reports whether the mounts on a folder all show the root of one file system of memory or huge pages. There are
// two mounts if the root directory was bound to itself and shares its mounts.
func isWholeMemory(on []*mountinfo.Info) bool {
	return len(on) > 0 && !slices.ContainsFunc(on, func(m *mountinfo.Info) bool {
		return m.Root != "/" || m.FSType != "tmpfs" && m.FSType != "hugetlbfs" || m.Major != on[0].Major || m.Minor != on[0].Minor
	})
}

// ownMount reports whether the memory of a volume is mounted on its folder. Any other mount there, or on a folder between the
// pod's folder and it, is an error: its files belong to others, and must not be written, chmodded or removed.
func ownMount(p Folder, folder string, memory bool) (bool, error) {
	at := ""
	for element := range strings.SplitSeq(folder, "/") {
		at = filepath.Join(at, element)
		is, err := p.IsMountPoint(at)
		if err != nil {
			return false, IgnoreAbsent(err)
		}
		if !is {
			continue
		}
		mounts, err := MountsIn(p)
		if err != nil {
			return false, err
		}
		on := slices.DeleteFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint != filepath.Join(p.Path(), at) })
		if at == folder && memory && isWholeMemory(on) {
			return true, nil
		}
		return false, fmt.Errorf("%s is mounted where the agent writes the files of a volume: unmount it", mountNames(on))
	}
	return false, nil
}

// unmountTimeout is how long a pod waits for one unmount. After that the unmount is reported, and a retry joins it.
const unmountTimeout = time.Minute

// unmount undoes the topmost mount on a folder. The kernel first writes data back, and a hung server may block that for ever.
// The call then stays blocked in a goroutine of its own, and later calls join it.
func unmount(ctx context.Context, p Folder, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	path := filepath.Join(p.Path(), folder)
	return p.Bounded(ctx, path, "unmounting "+path, func(own *safepath.Root) error { return own.Unmount(folder) })
}

// RemoveMount undoes all mounts on a folder of the pod and removes the folder. It keeps a folder with data and returns an
// error.
func RemoveMount(ctx context.Context, p Folder, folder string) error {
	for {
		is, err := p.IsMountPoint(folder)
		if IsAbsent(err) {
			return nil
		}
		if err == nil && is {
			if err = unmount(ctx, p, folder); errors.Is(err, unix.EBUSY) && safepath.IsDead(p.AskServer(ctx, folder)) {
				err = p.Detach(folder)
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		return p.RemoveEmpty(folder)
	}
}
