package volumes

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// uniqueName is a volume's name on the Node.
func uniqueName(r csi.Record) string { return csiName + "/" + r.Driver + "^" + r.Handle }

// inUse lists the attachable volumes that some pod wants or that may be on this node still: none of them may be detached. A
// driver of which it is not known whether its volumes are attached counts as one of which they are. While not all can be read, as
// the error says, those that the Node has stay among them.
func (s *Storage) inUse(ctx context.Context) ([]v1.UniqueVolumeName, error) {
	published, err := s.published()
	staged, stagedErr := s.staged()
	if err = errors.Join(err, stagedErr); err != nil && s.node.Load() == nil {
		return nil, err
	}
	names, pods := map[string]bool{}, map[string]bool{}
	for _, p := range published {
		pods[p.uid] = true
		staged[p.uid+"/"+p.folder] = p.Record
	}
	for _, r := range staged {
		if r.Lifecycle == string(storagev1.VolumeLifecycleEphemeral) || names[uniqueName(r)] {
			continue
		}
		s.mu.Lock()
		attached, known := s.attachable[r.Driver]
		s.mu.Unlock()
		if !known {
			spec, err := s.driverObject(ctx, r.Driver)
			attached = err != nil || spec.AttachRequired == nil || *spec.AttachRequired
		}
		if attached {
			names[uniqueName(r)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDisk = pods
	for name := range s.wanted {
		names[name] = true
	}
	if err != nil {
		for _, name := range s.node.Load().Status.VolumesInUse {
			names[string(name)] = true
		}
	}
	out := []v1.UniqueVolumeName{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, v1.UniqueVolumeName(name))
	}
	return out, err
}

// publishedVolume is a pod's volume of a driver, as it lies on the disk.
type publishedVolume struct {
	csi.Record
	uid, folder string // the folder is in the pod's
}

// published lists the records of all pods that can be read. One that cannot be is an error besides, as it may be of any volume,
// unless nothing is mounted there.
func (s *Storage) published() (out []publishedVolume, err error) {
	pods, err := openPods(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close() //nolint:errcheck // read only
	uids, err := pods.Names(".")
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		kind := filepath.Join(uid, volumesFolder, escaped(csiName))
		names, listErr := namesIn(pods, kind)
		err = errors.Join(err, listErr)
		for _, name := range names {
			r, readErr := csi.Read(pods, filepath.Join(kind, name))
			if readErr == nil {
				out = append(out, publishedVolume{r, uid, csiFolder(name)})
			} else if !isAbsent(readErr) {
				is, _, isErr := pods.IsMountPoint(filepath.Join(kind, name, csi.MountFolder))
				if is || ignoreAbsent(isErr) != nil {
					err = errors.Join(err, readErr)
				}
			}
		}
	}
	return out, err
}

// staged lists the records of what is staged that can be read, by <driver>/<hash>. One that cannot be is an error besides.
func (s *Storage) staged() (map[string]csi.Record, error) {
	out := map[string]csi.Record{}
	root, err := safepath.OpenRoot(s.csiFolder())
	if isAbsent(err) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // read only
	drivers, err := namesIn(root, ".")
	if err != nil {
		return nil, err
	}
	for _, driver := range drivers {
		hashes, listErr := namesIn(root, driver)
		err = errors.Join(err, listErr)
		for _, hash := range hashes {
			key := filepath.Join(driver, hash)
			r, readErr := csi.Read(root, key)
			if readErr == nil {
				out[key] = r
			}
			err = errors.Join(err, ignoreAbsent(readErr))
		}
	}
	return out, err
}

// namesIn lists a folder; what is none, or not there, has nothing in it.
func namesIn(root *safepath.Root, name string) ([]string, error) {
	info, err := root.Lstat(name)
	if isAbsent(err) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := root.Names(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
