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
// driver of which it is not known whether its volumes are attached counts as one of which they are.
func (s *Storage) inUse(ctx context.Context) ([]v1.UniqueVolumeName, error) {
	published, err := s.published()
	if err != nil {
		return nil, err
	}
	staged, err := s.staged()
	if err != nil {
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
	out := []v1.UniqueVolumeName{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, v1.UniqueVolumeName(name))
	}
	return out, nil
}

// publishedVolume is a pod's volume of a driver, as it lies on the disk.
type publishedVolume struct {
	csi.Record
	uid, folder string // the folder is in the pod's
}

// published lists the records of all pods. One that cannot be read is an error: it may be of any volume.
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
		names, err := namesIn(pods, kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			r, err := csi.Read(pods, filepath.Join(kind, name))
			switch {
			case err == nil:
				out = append(out, publishedVolume{r, uid, filepath.Join(volumesFolder, escaped(csiName), name)})
			case !isAbsent(err):
				return nil, err
			}
		}
	}
	return out, nil
}

// staged lists the records of what is staged, by <driver>/<hash>.
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
		hashes, err := namesIn(root, driver)
		if err != nil {
			return nil, err
		}
		for _, hash := range hashes {
			key := filepath.Join(driver, hash)
			r, err := csi.Read(root, key)
			switch {
			case err == nil:
				out[key] = r
			case !isAbsent(err):
				return nil, err
			}
		}
	}
	return out, nil
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
