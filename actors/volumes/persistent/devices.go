package persistent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// A block volume of a CSI driver (csi.Devices) has one record for all its pods, and each pod has a link, its claim on the volume.
// The record is written first, then the link, and only then is the driver called. Both are removed in the opposite order. The
// reconciler of staged.go undoes volumes without a pod, and the parts of pods that have no folder any more.

// deviceKey returns the key of operations on a block volume for all its pods.
func deviceKey(volume string) string { return filepath.Join(csi.DevicesFolder, volume) }

// claimDevice records on the disk that the pod has the block volume. The existing link of a kubelet stays.
func (j *job) claimDevice() error {
	devices, err := csi.MakeDevices(j.RootDir)
	if err != nil {
		return err
	}
	defer devices.Close() //nolint:errcheck // read only
	volume := j.record.Volume
	if was, err := devices.Read(volume); err == nil && !was.Same(j.record) {
		why := messages.Cause{Code: messages.CauseClaimPending, Kind: "PersistentVolume", Name: volume}
		return why.Errorf("another PersistentVolume of the name %s is still on this node: volume %s of CSI driver %s", volume,
			was.Handle, was.Driver)
	}
	if err := j.writeDevice(devices, j.record); err != nil {
		return err
	}
	if err := j.p.MkdirAll(filepath.Dir(j.place), kinds.FolderMode); err != nil {
		return err
	}
	if _, err = j.p.Readlink(j.place); kinds.IsAbsent(err) {
		err = j.p.Symlink(j.volume.Target, j.place)
	}
	return errors.Join(err, devices.MkdirAll(filepath.Dir(devices.Target(volume, "_")), kinds.FolderMode))
}

// stageDevice has the driver stage the block volume. A driver may leave nothing that shows it, so that each process stages the
// volume once more.
func (j *job) stageDevice(ctx context.Context) error {
	devices, err := csi.MakeDevices(j.RootDir)
	if err != nil {
		return err
	}
	defer devices.Close() //nolint:errcheck // read only
	if err := devices.MkdirAll(devices.Staging(j.record.Volume), kinds.FolderMode); err != nil || j.isReady(j.key()) {
		return err
	}
	if err := j.callStage(ctx); err != nil {
		return err
	}
	j.setReady(j.key(), true)
	return nil
}

// mapDevice maps the published device for the pod, and records its number.
func (j *job) mapDevice() error {
	device, err := blockmap.At(j.volume.Target)
	if err != nil {
		return fmt.Errorf("CSI driver %s has published no block device: %w", j.record.Driver, err)
	}
	devices, err := csi.MakeDevices(j.RootDir)
	if err != nil {
		return err
	}
	defer devices.Close() //nolint:errcheck // read only
	volume := j.record.Volume
	if err := devices.MkdirAll(devices.Maps(volume), kinds.FolderMode); err != nil {
		return err
	}
	maps, err := devices.Sub(devices.Maps(volume))
	if err != nil {
		return err
	}
	if err := errors.Join(blockmap.Map(maps, string(j.p.Pod.UID), j.volume.Target), maps.Close()); err != nil {
		return err
	}
	if at, err := blockmap.At(filepath.Join(j.p.Path(), j.place)); err != nil || at != device { // e.g. another name in /dev
		if err := errors.Join(kinds.IgnoreAbsent(j.p.Unlink(j.place)), j.p.Symlink(j.volume.Target, j.place)); err != nil {
			return err
		}
	}
	return j.recordDevice(devices, j.record, device)
}

// recordDevice adds the device to the record of a volume. After that, its users are found even if its node is gone.
func (s *Storage) recordDevice(devices csi.Devices, r csi.Record, device blockmap.Device) error {
	r.Mount = formatMount(&mountinfo.Info{Major: int(device.Major), Minor: int(device.Minor), FSType: blockType,
		Source: device.Sequence})
	return s.writeDevice(devices, r)
}

// writeDevice writes a record that all pods of a block volume share.
func (s *Storage) writeDevice(devices csi.Devices, r csi.Record) error {
	s.recording.Lock()
	defer s.recording.Unlock()
	return devices.Write(r.Volume, r)
}

// blockType is the type of a recorded mount that is a device.
const blockType = "block"

// isMapped reports whether a pod's block device is as mapDevice left it.
func (s *Storage) isMapped(p kinds.Folder, link string) bool {
	volume, uid := filepath.Base(link), string(p.Pod.UID)
	devices := csi.DevicesPath(s.RootDir)
	want, err := blockmap.At(filepath.Join(devices, csi.Devices{}.Target(volume, uid)))
	for _, path := range []string{filepath.Join(devices, csi.Devices{}.Maps(volume), uid), filepath.Join(p.Path(), link)} {
		is, atErr := blockmap.At(path)
		if err = errors.Join(err, atErr); is != want {
			return false
		}
	}
	return err == nil
}

// UnmapDevices undoes the block devices of a pod, also those that a kubelet mapped. Devices of other kinds stay. A kubelet
// removes the link before it calls the driver: the device of such a pod is undone once the pod has no folder (removeDevice).
func (s *Storage) UnmapDevices(ctx context.Context, p kinds.Folder) error {
	err := UnmapLocal(p)
	volumes, listErr := kinds.NamesIn(p.Root, filepath.Dir(csi.DeviceLink("_")))
	devices, openErr := csi.OpenDevices(filepath.Dir(filepath.Dir(p.Path())))
	if kinds.IsAbsent(openErr) {
		for _, volume := range volumes { // no driver was called yet
			err = errors.Join(err, unlink(p, volume))
		}
		return errors.Join(err, listErr)
	}
	if err = errors.Join(err, listErr, openErr); openErr != nil {
		return err
	}
	defer devices.Close() //nolint:errcheck // read only
	for _, volume := range volumes {
		err = errors.Join(err, s.unmapDevice(ctx, p, devices, volume))
	}
	return err
}

// unlink removes the link to a block device. Anything else in its place is data.
func unlink(p kinds.Folder, volume string) error {
	link := csi.DeviceLink(volume)
	if _, err := p.Readlink(link); err != nil {
		return kinds.IgnoreAbsent(err)
	}
	return kinds.IgnoreAbsent(p.Unlink(link))
}

// unmapDevice undoes a block device of a pod. The link is removed last, so that the next attempt finds the device.
func (s *Storage) unmapDevice(ctx context.Context, p kinds.Folder, devices csi.Devices, volume string) error {
	uid := filepath.Base(p.Path())
	r, err := devices.Read(volume)
	has, hasErr := devices.Has(volume, uid)
	_, stagedErr := devices.Lstat(devices.Staging(volume))
	switch {
	case hasErr != nil:
		return hasErr
	case kinds.IsAbsent(err) && kinds.IsAbsent(stagedErr) && !has: // the driver was not called yet
		return unlink(p, volume)
	case s == nil:
		return errors.Join(err,
			fmt.Errorf("block device %s is of a CSI driver, and there are none without an API server", volume))
	case err != nil:
		if r, err = s.rebuilt(ctx, volume, err); err != nil {
			return err
		}
	}
	driver, err := s.Drivers.Get(r.Driver)
	if err != nil {
		return err
	}
	began, err := time.Now(), s.unpublishDevice(ctx, devices, driver, r, uid)
	if metrics.Stored(metricName(r), "unmap_volume", began, err); err != nil {
		return err
	}
	defer s.touch(true)
	return unlink(p, volume)
}

// unpublishDevice has the driver remove a pod's device. A device that the driver then takes away has to be out of use.
func (s *Storage) unpublishDevice(ctx context.Context, devices csi.Devices, driver *csi.Driver, r csi.Record, uid string) error {
	target := devices.Target(r.Volume, uid)
	device := s.deviceOf(r, filepath.Join(devices.Path(), target))
	if device != nil {
		if err := s.recordDevice(devices, r, *device); err != nil {
			return err
		}
	}
	maps, err := devices.Sub(devices.Maps(r.Volume))
	if err == nil {
		err = errors.Join(blockmap.Unmap(maps, uid), maps.Close())
	}
	if kinds.IgnoreAbsent(err) != nil {
		return err
	}
	if !driver.Can(csi.Stages) && s.mayBeAttached(ctx, r) {
		published, _, err := s.published()
		if err == nil && len(others(published, r, uid)) == 0 {
			err = s.checkUse(ctx, driver, r, uid, device)
		}
		if err != nil {
			return err
		}
	}
	if err := driver.Unpublish(ctx, s.ownerOf(uid, r.Volume), r.Handle, filepath.Join(devices.Path(), target)); err != nil {
		return err
	}
	return blockmap.Drop(devices.Root, target)
}

// deviceOf returns the device at a path, or the recorded one if there is none; nil: unknown.
func (s *Storage) deviceOf(r csi.Record, path string) *blockmap.Device {
	if d, err := blockmap.At(path); err == nil {
		return &d
	}
	m := parseMount(r.Mount)
	if m == nil || m.FSType != blockType || m.Source == "" { // without a sequence, it may be another device by now
		return nil
	}
	return &blockmap.Device{Major: uint32(m.Major), Minor: uint32(m.Minor), Sequence: m.Source} //nolint:gosec // as recorded
}

// checkUse returns an error that names the users of a device, if it has any. The driver's process is none: some keep the device
// open until they are to unstage it.
func (s *Storage) checkUse(ctx context.Context, driver *csi.Driver, r csi.Record, uid string, device *blockmap.Device) error {
	if device == nil {
		return nil
	}
	owner := safepath.Owner{Namespace: s.ownerOf(uid, r.Volume).Namespace, Pod: uid}
	users, err := device.Users(ctx, owner, driver.Process(ctx))
	if err != nil || len(users) == 0 {
		return err
	}
	return fmt.Errorf("block device %s, volume %s of CSI driver %s, is still in use, so it stays: by %s", device, r.Handle,
		r.Driver, strings.Join(users, ", "))
}

// rebuilt returns the record of a block volume from its PersistentVolume. Another PersistentVolume may have the name by now. Its
// volume is in use on the Node only if it is this one.
func (s *Storage) rebuilt(ctx context.Context, volume string, lost error) (csi.Record, error) {
	r, err := s.recordByName(ctx, volume, true)
	if err == nil && !s.isOnNode(ctx, r) {
		err = errOther(volume)
	}
	if err != nil {
		return csi.Record{}, errors.Join(fmt.Errorf("the record of block device %s is lost: %w", volume, lost), err)
	}
	return r, nil
}

func errOther(volume string) error {
	return fmt.Errorf("%s is another volume by now", object{"PersistentVolume", volume})
}

// recordByName returns the record of the CSI PersistentVolume with this name, and an error unless it is a block device, or a file
// system, as requested. A node may read it while the API server has a pod with it.
func (s *Storage) recordByName(ctx context.Context, volume string, block bool) (csi.Record, error) {
	pv, err := fetch(ctx, nil, object{"PersistentVolume", volume}, s.Client.CoreV1().PersistentVolumes().Get, volume)
	if err == nil && inTree.IsPVMigratable(pv) {
		pv, err = inTree.TranslateInTreePVToCSI(klog.Logger{}, pv)
	}
	if err != nil {
		return csi.Record{}, err
	}
	if pv.Spec.CSI == nil || isBlock(pv) != block {
		return csi.Record{}, errOther(volume)
	}
	return s.recordOf(pv), nil
}

// isOnNode reports whether an attachable volume is in use on the Node. Without the Node, and of other volumes, nothing is known.
func (s *Storage) isOnNode(ctx context.Context, r csi.Record) bool {
	node, name := s.node.Load(), uniqueName(r)
	return node == nil || inUseOn(node, name) || attachedTo(node, name) || !s.mayBeAttached(ctx, r)
}

// recordOf returns the record of a CSI PersistentVolume.
func (s *Storage) recordOf(pv *v1.PersistentVolume) csi.Record {
	source := pv.Spec.CSI
	return csi.Record{Volume: pv.Name, Driver: source.Driver, Handle: source.VolumeHandle, Node: s.NodeName,
		Lifecycle: string(storagev1.VolumeLifecyclePersistent),
		Attached:  attachmentName(source.VolumeHandle, source.Driver, s.NodeName)}
}

// unusedDevices lists the block volumes of drivers that no pod with a folder has, and the maps of local volumes for such pods.
func (s *Storage) unusedDevices() (out []string, err error) {
	out, err = s.unusedMaps()
	found, findErr := csi.FindDevices(s.RootDir)
	err = errors.Join(err, findErr)
	for volume, d := range found {
		if !d.Used() {
			out = append(out, deviceKey(volume))
		}
	}
	return out, err
}

// removeDevice undoes a block volume that no pod has any more: parts of pods that are gone, then the staged volume.
func (d stagedDriver) removeDevice(ctx context.Context, volume string) error {
	found, err := csi.FindDevices(d.RootDir)
	is, known := found[volume]
	if err != nil || !known || is.Used() {
		return err
	}
	devices, err := csi.OpenDevices(d.RootDir)
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	defer devices.Close() //nolint:errcheck // read only
	if len(is.Pods) > 0 || is.Staged {
		if err := d.undoDevice(ctx, devices, volume, is); err != nil {
			return err
		}
	}
	d.setReady(deviceKey(volume), false)
	defer d.touch(false)
	if err := devices.Clear(volume); err != nil {
		return err
	}
	d.setStager(deviceKey(volume), "")
	d.Log.Info("removed a block volume", "driver", is.Record.Driver, "volume", volume)
	return nil
}

func (d stagedDriver) undoDevice(ctx context.Context, devices csi.Devices, volume string, is csi.Device) (err error) {
	r := is.Record
	if is.Err != nil {
		if r, err = d.rebuilt(ctx, volume, is.Err); err != nil {
			return err
		}
	}
	driver, err := d.Drivers.Get(r.Driver)
	if err != nil {
		return err
	}
	device := d.deviceOf(r, "")
	for uid := range is.Pods {
		if err := d.unpublishDevice(ctx, devices, driver, r, uid); err != nil {
			return err
		}
	}
	if !is.Staged || !driver.Can(csi.Stages) {
		return nil
	}
	key := deviceKey(volume)
	began := time.Now()
	defer func() { metrics.Stored(metricName(r), "unmap_device", began, err) }()
	if err := d.checkUse(ctx, driver, r, key, device); err != nil {
		return err
	}
	d.setReady(key, false)
	return driver.Unstage(ctx, d.stagerOf(key, volume), r.Handle, filepath.Join(devices.Path(), devices.Staging(volume)))
}
