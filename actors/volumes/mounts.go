package volumes

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

func stillMountedError(mounts []*mountinfo.Info) error {
	var names []string
	for _, m := range mounts {
		names = append(names, fmt.Sprintf("%s (%s)", m.Mountpoint, m.FSType))
	}
	return fmt.Errorf("still mounted, so nothing of its folder is removed: %s", strings.Join(names, ", "))
}

// mountsIn reads what is mounted on the pod's folder or in it, with paths that begin as the folder's does.
func mountsIn(folder podFolder) ([]*mountinfo.Info, error) {
	resolved, err := filepath.EvalSymlinks(folder.Path())
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("reading what is mounted: %w", err)
	}
	for _, m := range mounts {
		m.Mountpoint = folder.Path() + strings.TrimPrefix(m.Mountpoint, resolved)
	}
	return mounts, nil
}

// foreign are the mounts in the folder of a volume that somebody else made.
func foreign(mounts []*mountinfo.Info, folder podFolder, p plugin, f foundVolume) []*mountinfo.Info {
	at := filepath.Join(folder.Path(), f.path())
	out := foreignMounts(mounts, at, p.inMemory(folder, f.volume))
	if m, ok := p.(mounter); ok {
		own := filepath.Join(folder.Path(), m.mountsAt(f.volume))
		out = slices.DeleteFunc(out, func(m *mountinfo.Info) bool { return m.Mountpoint == own })
	}
	return out
}

// foreignMounts are those in the folder of a volume, and those on it where they are not what its kind mounts there: one file
// system of memory, and all of it. A part of another file system that is bound there is somebody else's.
func foreignMounts(mounts []*mountinfo.Info, path string, inMemory bool) []*mountinfo.Info {
	var on, below []*mountinfo.Info
	for _, m := range mounts {
		switch {
		case m.Mountpoint == path:
			on = append(on, m)
		case strings.HasPrefix(m.Mountpoint, path+"/"):
			below = append(below, m)
		}
	}
	if len(on) == 1 && inMemory && on[0].Root == "/" && (on[0].FSType == "tmpfs" || on[0].FSType == "hugetlbfs") {
		return below
	}
	return append(on, below...)
}
