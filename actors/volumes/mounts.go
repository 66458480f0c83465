package volumes

import (
	"fmt"
	"path/filepath"
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

// mountsBelow are those in the folder, not the one on it.
func mountsBelow(mounts []*mountinfo.Info, path string) []*mountinfo.Info {
	var out []*mountinfo.Info
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, path+"/") {
			out = append(out, m)
		}
	}
	return out
}
