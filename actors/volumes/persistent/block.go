package persistent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
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
	case isBlock(pv) && pv.Spec.Local == nil && pv.Spec.CSI == nil:
		return kinds.Permanent("PersistentVolume %s is a block device of another kind than csi and local, which is not supported",
			pv.Name)
	}
	return nil
}

// mapLocal links the block device of a local volume into the pod's folder, and returns the path of the link. The runtime
// follows it. The kubelet also maps the device in its plugins folder (blockmap), so that no device with the same number takes its
// place. A local volume does not need that: its path names the device, and a runtime resolves the number when it creates a
// container.
func (s *Storage) mapLocal(ctx context.Context, p kinds.Folder, volume string, pv *v1.PersistentVolume) (string, error) {
	path, err := localPath(pv)
	if err != nil {
		return "", err
	}
	p.SetPlugin(localName, true)
	if err := checkDevice(ctx, p, path); err != nil {
		return "", fmt.Errorf("local.path of PersistentVolume %s: %w", pv.Name, err)
	}
	link := kinds.FoundVolume{Plugin: kinds.Escaped(localName), Volume: pv.Name}.Device()
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
	if h, _ := s.lookUp(p.Pod.UID, volume); h.progress != done {
		recordMapped(p, pv.Name, "", filepath.Join(p.Path(), link))
	}
	// Like a hostPath, the volume has no folder to check or to measure.
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.folder, h.progress = "", done })
	return filepath.Join(p.Path(), link), nil
}

// recordMapped records the kubelet's Events of a mapped device. maps is the folder with the maps of all its pods; empty: there is
// none.
func recordMapped(p kinds.Folder, volume, maps, link string) {
	text := fmt.Sprintf("MapVolume.MapPodDevice succeeded for volume %q ", volume)
	for _, path := range []struct{ name, path string }{{"globalMapPath", maps}, {"volumeMapPath", filepath.Dir(link)}} {
		if path.path != "" {
			p.Record(messages.PodEvent(p.Pod, "", v1.EventTypeNormal, messages.EventMounted,
				text+fmt.Sprintf("%s %q", path.name, path.path), time.Now()))
		}
	}
}

// checkDevice returns an error if a path, after its links, is no block device. The path may be on a server that hangs.
func checkDevice(ctx context.Context, p kinds.Folder, path string) error {
	st, err := statFile(ctx, p, path)
	switch {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return fmt.Errorf("%s is no block device, although the volumeMode is Block", path)
	}
	return nil
}

// UnmapLocal removes the links to block devices of local volumes from the pod's folder, and the maps that a kubelet made of the
// devices. It touches no device.
func UnmapLocal(p kinds.Folder) error {
	found, err := kinds.FoundDevices(p)
	for _, f := range found {
		if f.Plugin != kinds.Escaped(localName) {
			continue
		}
		if _, linkErr := p.Readlink(f.Device()); linkErr == nil {
			began, unmapErr := time.Now(), unmapLocal(p, f)
			metrics.Stored(localName, "unmap_volume", began, unmapErr)
			err = errors.Join(err, unmapErr)
		}
	}
	return err
}

func unmapLocal(p kinds.Folder, f kinds.FoundVolume) error {
	uid, rootDir := filepath.Base(p.Path()), filepath.Dir(filepath.Dir(p.Path()))
	err := eachLocal(rootDir, func(root *safepath.Root) error { return unmapFrom(root, f.Volume, uid) })
	if err != nil {
		return err
	}
	return kinds.IgnoreAbsent(p.Unlink(f.Device()))
}

// eachLocal calls do for each folder in which a kubelet may have mapped devices of local volumes.
func eachLocal(rootDir string, do func(*safepath.Root) error) (err error) {
	for _, plugin := range []string{localName, kinds.Escaped(localName)} {
		root, openErr := safepath.OpenRoot(filepath.Join(rootDir, "plugins", plugin, csi.DevicesFolder))
		if openErr != nil {
			err = errors.Join(err, kinds.IgnoreAbsent(openErr))
			continue
		}
		err = errors.Join(err, do(root), root.Close()) // an absence within it may be joined with another error
	}
	return err
}

// unusedMaps lists the maps that a kubelet made of devices of local volumes, for pods without a folder. A kubelet removes a pod's
// link to the device first: one that was killed then leaves a map that no pod's end finds.
func (s *Storage) unusedMaps() (keys []string, err error) {
	err = eachLocal(s.RootDir, func(root *safepath.Root) (err error) {
		volumes, err := root.Names(".")
		for _, volume := range volumes {
			uids, listErr := kinds.NamesIn(root, volume)
			err = errors.Join(err, listErr)
			for _, uid := range uids {
				if s.isGone(uid) {
					keys = append(keys, filepath.Join(localName, volume, uid))
				}
			}
		}
		return err
	})
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// isGone reports whether the pod has no folder.
func (s *Storage) isGone(uid string) bool {
	_, err := os.Lstat(filepath.Join(s.RootDir, kinds.PodsFolder, uid))
	return kinds.IsAbsent(err)
}

// removeMap undoes a kubelet's map of a local volume's device, if its pod has no folder.
func (s *Storage) removeMap(volume, uid string) error {
	if err := errors.Join(safepath.CheckElement(volume), safepath.CheckElement(uid)); err != nil || !s.isGone(uid) {
		return err
	}
	return eachLocal(s.RootDir, func(root *safepath.Root) error { return unmapFrom(root, volume, uid) })
}

// unmapFrom undoes the map of a pod in a folder of maps, and removes the folder after the last one.
func unmapFrom(root *safepath.Root, folder, uid string) error {
	maps, err := root.Sub(folder)
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	if err := errors.Join(blockmap.Unmap(maps, uid), maps.Close()); err != nil {
		return err
	}
	var others *safepath.NotEmptyError
	if err = root.RemoveEmpty(folder); errors.As(err, &others) { // of other pods
		return nil
	}
	return err
}
