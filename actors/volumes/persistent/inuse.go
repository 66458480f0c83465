package persistent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/messages"
)

// uniqueName returns a volume's name on the Node.
func uniqueName(r csi.Record) string { return csi.PluginName + "/" + r.Driver + "^" + r.Handle }

// InUse lists the attachable volumes that a pod needs or that may still be on this node. None of them may be detached. Volumes
// of a driver count as attachable while its CSIDriver is unknown. If some records cannot be read, InUse returns an error, and
// the list keeps the volumes in the Node's status.
func (s *Storage) InUse(ctx context.Context) ([]v1.UniqueVolumeName, error) {
	published, lost, err := s.published()
	staged, lostStaged, stagedErr := s.staged()
	names, pods := map[string]bool{}, map[string]bool{}
	for key := range published {
		pods[podOf(key)] = true
	}
	for key := range lost {
		pods[podOf(key)] = true
	}
	unlisted, lostErr := s.unlisted(lost, lostStaged)
	for _, name := range unlisted {
		names[name] = true
	}
	maps.Copy(staged, published)
	devicesErr := addDevices(s.RootDir, staged, pods)
	kept, keptErr := s.keptKinds(pods)
	units, unitsErr := iscsi.Records(s.RootDir)
	if err = errors.Join(err, stagedErr, lostErr, devicesErr, keptErr, unitsErr); err != nil && s.node.Load() == nil {
		return nil, err
	}
	for _, r := range staged {
		if name := uniqueName(r); !names[name] && s.mayBeAttached(ctx, r) {
			names[name] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDisk = pods
	for _, volumes := range s.pods {
		for _, h := range volumes {
			if h.wants != "" {
				names[h.wants] = true
			}
		}
	}
	addUnits(names, units, s.node.Load())
	if node := s.node.Load(); node != nil {
		for _, n := range node.Status.VolumesInUse {
			name := string(n)
			if err != nil || slices.ContainsFunc(kept, func(kind string) bool { return strings.HasPrefix(name, kind) }) {
				names[name] = true
			}
		}
	}
	out := []v1.UniqueVolumeName{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, v1.UniqueVolumeName(name))
	}
	return out, err
}

// addDevices adds the records of block volumes, and the pods with a block device. It returns an error for each volume without a
// readable record that a driver may have.
func addDevices(rootDir string, records map[string]csi.Record, pods map[string]bool) error {
	found, err := csi.FindDevices(rootDir)
	for volume, d := range found {
		for uid, p := range d.Pods {
			pods[uid] = pods[uid] || p.Alive
		}
		if d.Err == nil {
			records[deviceKey(volume)] = d.Record
		} else if d.Lost() {
			err = errors.Join(err, fmt.Errorf("the block device %s: %w", volume, d.Err))
		}
	}
	return err
}

// keptKinds returns the name prefixes of the kinds of volumes that only a kubelet supports and that it left here. Such volumes
// stay in use. It adds the pods with a block device of these kinds.
func (s *Storage) keptKinds(pods map[string]bool) (kept []string, err error) {
	folders, err := leftover.Find(s.RootDir, false)
	for _, f := range folders {
		plugin := strings.ReplaceAll(f.Plugin, "~", "/")
		if f.Code != messages.HeldDevice && f.Code != messages.HeldPlugin || plugin == csi.PluginName {
			continue // data is in use by no driver, and a mount without a record is an error of its own
		}
		if f.Code == messages.HeldDevice && f.UID != "" {
			pods[f.UID] = true
		}
		kept = append(kept, plugin+"/")
	}
	return kept, err
}

// published lists the records of all pods, as readRecords does, also for block devices. podOf returns the pod of a key.
func (s *Storage) published() (map[string]csi.Record, lostRecords, error) {
	pods, err := kinds.OpenPods(s.RootDir)
	if err != nil {
		return nil, nil, err
	}
	out, lost, err := readRecords(pods, kinds.VolumeFolder(csi.PluginName, ""), csi.MountFolder)
	devices, devicesErr := csi.FindDevices(s.RootDir)
	for volume, d := range devices {
		for uid := range d.Pods {
			if d.Err == nil {
				out[filepath.Join(uid, csi.DeviceLink(volume))] = d.Record
			}
		}
	}
	return out, lost, errors.Join(err, devicesErr)
}

func podOf(key string) string {
	uid, _, _ := strings.Cut(key, "/")
	return uid
}

// staged lists the records of staged volumes by <driver>/<hash>, as readRecords does.
func (s *Storage) staged() (map[string]csi.Record, lostRecords, error) {
	root, err := safepath.OpenRoot(s.csiFolder())
	if err != nil {
		return map[string]csi.Record{}, nil, kinds.IgnoreAbsent(err)
	}
	return readRecords(root, "", csi.GlobalMount)
}

// readRecords lists the records <folder>/<below>/<volume> by their paths, and closes the root. Lost and unreadable records are
// listed separately if something is, or may be, mounted. An error is returned beside the records that were found.
func readRecords(root *safepath.Root, below, mount string) (map[string]csi.Record, lostRecords, error) {
	defer root.Close() //nolint:errcheck // read only
	folders, err := root.Names(".")
	out, lost := map[string]csi.Record{}, lostRecords{}
	for _, folder := range folders {
		volumes, listErr := kinds.NamesIn(root, filepath.Join(folder, below))
		err = errors.Join(err, listErr)
		for _, volume := range volumes {
			key := filepath.Join(folder, below, volume)
			r, readErr := csi.Read(root, key)
			if readErr == nil {
				out[key] = r
				continue
			}
			is, isErr := root.IsMountPoint(filepath.Join(key, mount))
			if is || kinds.IgnoreAbsent(isErr) != nil {
				lost[key] = errors.Join(readErr, kinds.IgnoreAbsent(isErr))
			}
		}
	}
	return out, lost, err
}
