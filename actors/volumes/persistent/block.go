package persistent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/messages"
)

func isBlock(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// checkMode returns an error if the containers of a pod use a volume in another mode than its own, or if the agent cannot
// provide that mode.
func checkMode(pod *v1.Pod, volume string, pv *v1.PersistentVolume) error {
	mounted, device := podspec.VolumeUses(pod, volume)
	mode := messages.Cause{Code: messages.CauseVolumeMode, Name: pv.Name}
	switch {
	case isBlock(pv) && mounted:
		return kinds.Permanent("%w", mode.Errorf("PersistentVolume %s is a block device (volumeMode Block), but a container "+
			"names it in volumeMounts", pv.Name))
	case !isBlock(pv) && device:
		return kinds.Permanent("%w", mode.Errorf("PersistentVolume %s is a file system (volumeMode Filesystem), but a container "+
			"names it in volumeDevices", pv.Name))
	case isBlock(pv) && pv.Spec.Local == nil:
		return kinds.Permanent("PersistentVolume %s is a block device of another kind than local, which is not supported yet",
			pv.Name)
	}
	return nil
}

// mapLocal links the block device of a local volume into the pod's folder, and returns the path of the link. The runtime
// follows it. The kubelet also binds the device in its plugins folder and keeps it open by a loop device, so that no device
// with the same number takes its place. A local volume needs neither: its path names the device, and a runtime resolves the
// number when it creates a container.
func (s *Storage) mapLocal(ctx context.Context, p kinds.Folder, volume string, pv *v1.PersistentVolume) (string, error) {
	path, err := localPath(pv)
	if err != nil {
		return "", err
	}
	p.SetPlugin(localName)
	if err := checkDevice(ctx, p, path); err != nil {
		return "", fmt.Errorf("local.path of PersistentVolume %s: %w", pv.Name, err)
	}
	link := kinds.Found{Plugin: kinds.Escaped(localName), Volume: pv.Name}.Device()
	if err := p.MkdirAll(filepath.Dir(link), kinds.FolderMode); err != nil {
		return "", err
	}
	old, err := p.Readlink(link)
	if err == nil && old != path { // the volume was made again under its name
		if err := p.Unlink(link); err != nil {
			return "", err
		}
		err = unix.ENOENT
	}
	if kinds.IsAbsent(err) {
		err = p.Symlink(path, link)
	}
	if err != nil {
		return "", err
	}
	// Like a hostPath, the volume has no folder to check or to measure.
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.folder, h.progress = "", done })
	return filepath.Join(p.Path(), link), nil
}

// checkDevice returns an error if a path, after its links, is no block device. The path may be on a server that hangs.
func checkDevice(ctx context.Context, p kinds.Folder, path string) error {
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	owner := safepath.Owner{Namespace: p.Pod.Namespace, Pod: string(p.Pod.UID)}
	st, err := safepath.Bounded(ctx, owner, path, "stat "+path, func() (st unix.Stat_t, err error) {
		err = unix.Stat(path, &st)
		return st, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return fmt.Errorf("%s is no block device, although the volumeMode is Block", path)
	}
	return nil
}

// UnmapLocal removes the links to block devices of local volumes from the pod's folder. It touches no device. A device that a
// kubelet mapped keeps its link.
func UnmapLocal(p kinds.Folder) error {
	found, err := kinds.FoundDevices(p)
	for _, f := range found {
		if !leftover.IsLink(p.Root, f) {
			continue
		}
		mapped, mapErr := leftover.KubeletMaps(filepath.Dir(filepath.Dir(p.Path())), filepath.Base(p.Path()), f.Volume)
		if err = errors.Join(err, mapErr); mapErr == nil && !mapped {
			err = errors.Join(err, kinds.IgnoreAbsent(p.Unlink(f.Device())))
		}
	}
	return err
}
