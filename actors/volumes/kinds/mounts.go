package kinds

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// StillMounted is an error that names the mounts.
func StillMounted(mounts []*mountinfo.Info) error {
	var names []string
	for _, m := range mounts {
		names = append(names, fmt.Sprintf("%s (%s)", m.Mountpoint, m.FSType))
	}
	return fmt.Errorf("still mounted, so nothing of its folder is removed: %s", strings.Join(names, ", "))
}

// MountsIn reads what is mounted on the pod's folder or in it, with paths that begin as the folder's does.
func MountsIn(folder Folder) ([]*mountinfo.Info, error) {
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

// Foreign are the mounts on the folder of a volume and in it that somebody else made: all but what its kind mounts there. That is
// one file system of memory, and all of it, as a part that is bound there is somebody else's; or what is at a path of its own.
func Foreign(mounts []*mountinfo.Info, folder Folder, p Plugin, f Found) []*mountinfo.Info {
	at, own := filepath.Join(folder.Path(), f.path()), ""
	if m, ok := p.(Mounter); ok {
		own = filepath.Join(folder.Path(), m.MountsAt(f.Volume))
	}
	var on, below []*mountinfo.Info
	for _, m := range mounts {
		switch {
		case m.Mountpoint == own:
		case m.Mountpoint == at:
			on = append(on, m)
		case strings.HasPrefix(m.Mountpoint, at+"/"):
			below = append(below, m)
		}
	}
	if len(on) == 1 && on[0].Root == "/" && (on[0].FSType == "tmpfs" || on[0].FSType == "hugetlbfs") &&
		p.InMemory(folder, f.Volume) {
		return below
	}
	return append(on, below...)
}
