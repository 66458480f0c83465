package persistent

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// lostRecords are mounts of drivers without a readable record, by the key of the record, with the reason. Each may be of any
// volume, unless devices show another.
type lostRecords map[string]error

// mayHave returns an error if a pod's mount without a record may be of the volume. It cannot be if the volume's staging folder
// has another device, or if the mount is of another staged volume.
func (s *Storage) mayHave(lost lostRecords, key string) error {
	var errs []error
	for at, why := range lost {
		staged, known := s.stagedOn(at)
		_, same := staged[key]
		own, err := mountsAt(filepath.Join(s.csiFolder(), key, csi.GlobalMount))
		if !known || same || len(own) == 0 && !isStaged(staged) {
			errs = append(errs, why, kinds.IgnoreAbsent(err))
		}
	}
	return errors.Join(errs...)
}

// recordOfMount returns a record for a pod's mount if its own one is lost or damaged, as by a power cut or a kubelet that was
// killed (kubernetes/kubernetes#108217). The folder has the name of the PersistentVolume, or that of a volume of the pod. The
// volume of that PersistentVolume counts if it is the staged one whose file system is mounted, or in use on the Node as an
// attachable one, and no other pod has it. It returns nil for a folder without a mount, and if none counts: what is mounted
// then stays.
func (s *Storage) recordOfMount(ctx context.Context, p kinds.Folder, folder string) *csi.Record {
	if is, err := p.IsMountPoint(filepath.Join(folder, csi.MountFolder)); err != nil || !is {
		return nil
	}
	uid, volume := filepath.Base(p.Path()), filepath.Base(folder)
	r, err := s.recordByName(ctx, volume, false)
	if err != nil {
		p.Node.Log.Warn("the record of a CSI volume is lost, and no PersistentVolume replaces it", "pod", uid, "volume", volume,
			"error", err)
		return nil
	}
	staged, _ := s.stagedOn(filepath.Join(uid, folder))
	if staged[stagedKey(r)] {
		return &r
	}
	// A PersistentVolume that was made again may have another volume. If that one is on the Node for another pod, the list proves
	// nothing about this folder.
	published, _, err := s.published()
	if err != nil || len(others(published, r, uid)) > 0 || isInline(p.Pod, volume) || len(staged) > 0 || s.node.Load() == nil ||
		!s.mayBeAttached(ctx, r) || !s.isOnNode(ctx, r) {
		return nil
	}
	return &r
}

// isInline reports whether the pod, where it is known, has a CSI volume of this name that is no claim's.
func isInline(pod *v1.Pod, volume string) bool {
	return pod != nil && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume && v.CSI != nil })
}

// stagedOn returns the staged volumes with the device of a pod's mount, and whether the mount is of their file system or of a
// part of it. known is false if the device is not found.
func (s *Storage) stagedOn(key string) (staged map[string]bool, known bool) {
	own, err := mountsAt(filepath.Join(s.RootDir, kinds.PodsFolder, key, csi.MountFolder))
	if err != nil || len(own) == 0 {
		return nil, false
	}
	folder, err := filepath.EvalSymlinks(s.csiFolder())
	if err != nil {
		return nil, kinds.IsAbsent(err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(folder))
	staged = map[string]bool{}
	for _, m := range mounts {
		key, is := strings.CutSuffix(strings.TrimPrefix(m.Mountpoint, folder+"/"), "/"+csi.GlobalMount)
		for _, o := range own {
			if is && m.Major == o.Major && m.Minor == o.Minor {
				staged[key] = staged[key] || isPart(o, m)
			}
		}
	}
	return staged, err == nil
}

func isStaged(on map[string]bool) bool { return slices.Contains(slices.Collect(maps.Values(on)), true) }

// unlisted returns the names on the Node of volumes that are in use by mounts without a record. It returns an error if these
// may be of any volume. A pod's mount of a staged volume needs no name here: the staged volume is listed.
func (s *Storage) unlisted(published, staged lostRecords) (names []string, err error) {
	for key, why := range published {
		if on, _ := s.stagedOn(key); !isStaged(on) {
			err = errors.Join(err, why)
		}
	}
	var onNode []v1.UniqueVolumeName
	if node := s.node.Load(); node != nil {
		onNode = node.Status.VolumesInUse
	}
	folders := map[string]string{}
	for _, name := range onNode {
		driver, handle, _ := strings.Cut(strings.TrimPrefix(string(name), csi.PluginName+"/"), "^")
		folders[stagedKey(csi.Record{Driver: driver, Handle: handle})] = string(name)
	}
	for key, why := range staged {
		if name := folders[key]; name != "" {
			names = append(names, name)
		} else {
			err = errors.Join(err, why)
		}
	}
	return names, err
}
