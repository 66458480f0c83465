package persistent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// csiVolume is a volume of a CSI driver: the pod's own [inline], or the volume that is bound to its claim. The driver mounts
// it. Folders and records are the kubelet's. Former in-tree kinds, e.g. awsElasticBlockStore, are translated by Kubernetes' own
// library (KEP-625).
type csiVolume struct{ kind }

var inTree = csitranslation.New()

func (csiVolume) Name() string { return csi.PluginName }

func (csiVolume) Handles(v *v1.Volume) bool { return v.CSI != nil || inTree.IsInlineMigratable(v) }

func (c csiVolume) Mount(ctx context.Context, p kinds.Folder, v *v1.Volume) (string, error) {
	if c.s == nil || !objectset.OfAPIServer(p.Pod) {
		return "", kinds.Permanent("CSI drivers need an API server")
	}
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", kinds.Permanent("%w", err)
	}
	source := volumeSource{inline: v.CSI}
	if v.CSI != nil {
		source.readOnly = ptr.Deref(v.CSI.ReadOnly, false)
	} else {
		var err error
		if source.pv, err = inTree.TranslateInTreeInlineVolumeToCSI(klog.Logger{}, v, p.Pod.Namespace); err != nil {
			return "", kinds.Permanent("%w", err)
		}
		source.readOnly, source.migrated = source.pv.Spec.CSI.ReadOnly, true
	}
	path, err := c.s.publish(ctx, p, v.Name, source)
	return c.s.keepMounted(p, v.Name, path, err)
}

// MountsAt implements kinds.Mounter.
func (csiVolume) MountsAt(volume string) string {
	return filepath.Join(kinds.VolumeFolder(csi.PluginName, volume), csi.MountFolder)
}

// keepMounted keeps a mounted volume as it is if it cannot be checked or published again now.
func (s *Storage) keepMounted(p kinds.Folder, volume, path string, err error) (string, error) {
	h, _ := s.lookUp(p.Pod.UID, volume)
	if h.folder == "" {
		return path, err
	}
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	news := s.change(p.Pod.UID, volume, func(h *podVolume) { h.trouble = trouble })
	if err == nil || h.progress != done || !s.isMounted(p, volume) {
		return path, err
	}
	if news {
		p.Node.Log.Warn("a mounted volume cannot be looked at again; it stays as it is",
			"pod", p.Pod.UID, "volume", volume, "error", err)
	}
	p.RenewAt(time.Now().Add(kinds.RenewRetry))
	return filepath.Join(p.Path(), h.folder), nil
}

// volumeSource is the source of a pod's volume: a PersistentVolume, or the pod's own volume.
type volumeSource struct {
	pv       *v1.PersistentVolume
	claim    *v1.PersistentVolumeClaim // the claim that is bound to it; nil: the pod has it without a claim
	inline   *v1.CSIVolumeSource
	readOnly bool
	migrated bool // of a kind that used to be built into Kubernetes
}

// job is the publication of one volume, with all that is known of the volume.
type job struct {
	volumeSource
	*Storage
	p      kinds.Folder
	name   string // the pod's name for the volume
	place  string // in the pod's folder: the mount, or the link to the block device
	record csi.Record
	spec   storagev1.CSIDriverSpec
	driver *csi.Driver
	volume csi.Volume
	stage  map[string]string // secrets for staging
}

// republishEvery is the interval between calls to a driver with requiresRepublish about a mounted volume.
const republishEvery = time.Minute

// publish has the driver mount the volume, after staging if the driver stages. A volume that was published with success is not
// published again, unless the driver requests it. A mount alone is no proof of success: the driver is called again, like by the
// kubelet.
func (s *Storage) publish(ctx context.Context, p kinds.Folder, volume string, source volumeSource) (string, error) {
	j := &job{volumeSource: source, Storage: s, p: p, name: volume}
	j.describe()
	p.SetPlugin(metricName(j.record), j.volume.Block)
	name := kinds.Escaped(j.record.Volume) // the name of a translated volume may have a slash
	if err := errors.Join(safepath.CheckElement(j.record.Driver), safepath.CheckElement(name)); err != nil {
		return "", kinds.Permanent("%w", err)
	}
	folder := kinds.VolumeFolder(csi.PluginName, name)
	j.place = filepath.Join(folder, csi.MountFolder)
	j.volume.Target = filepath.Join(p.Path(), j.place)
	if j.volume.Block {
		if err := csi.CheckDevice(name); err != nil {
			return "", kinds.Permanent("%w", err)
		}
		j.place = csi.DeviceLink(name)
		j.volume.Target = filepath.Join(csi.DevicesPath(s.RootDir), csi.Devices{}.Target(name, string(p.Pod.UID)))
	}
	path := filepath.Join(p.Path(), j.place)
	var err error
	if j.spec, err = j.driverObject(ctx, j.record.Driver); err != nil {
		return "", err
	}
	h, again := j.begin(p, volume, j.place), ptr.Deref(j.spec.RequiresRepublish, false)
	there := h.progress == done
	if again {
		p.RenewAt(time.Now().Add(republishEvery))
	} else if there {
		return path, j.grow(ctx, h.size)
	}
	if err := j.gather(ctx); err != nil {
		return "", err
	}
	if !there {
		if err := j.claimAndStage(ctx, folder); err != nil {
			return "", err
		}
	}
	if err := j.driver.Publish(ctx, j.volume); err != nil {
		return "", err
	}
	if j.volume.Block {
		err = j.mapDevice()
	} else {
		err = j.recordMount(p.Root, folder, csi.MountFolder)
	}
	if err != nil {
		return "", err
	}
	if err := j.grow(ctx, h.size); err != nil {
		return "", err
	}
	if j.changesOwner() && !there {
		if err := kinds.OwnVolume(ctx, p, j.place, h.progress != begun); err != nil {
			return "", err
		}
	}
	if j.volume.Block && !there {
		recordMapped(p, name, filepath.Join(csi.DevicesPath(s.RootDir), csi.Devices{}.Maps(name)), path)
	}
	j.change(p.Pod.UID, volume, func(h *podVolume) { h.progress = done })
	return path, nil
}

// metricName is the plugin's name in metrics.
func metricName(r csi.Record) string { return csi.PluginName + ":" + r.Driver }

// key returns the key of operations on the volume for all its pods.
func (j *job) key() string {
	if j.volume.Block {
		return deviceKey(j.record.Volume)
	}
	return stagedKey(j.record)
}

// claimVolume records on the disk that the pod has the volume.
func (j *job) claimVolume(folder string) error {
	if j.volume.Block {
		return j.claimDevice()
	}
	if err := j.p.MkdirAll(folder, kinds.FolderMode); err != nil {
		return err
	}
	return writeRecord(j.record, j.p.Root, folder)
}

// claimAndStage records on the disk that the pod has the volume, and stages it if the driver stages. For one volume these steps
// exclude each other: no volume is unstaged while a record of any pod exists.
func (j *job) claimAndStage(ctx context.Context, folder string) error {
	if j.pv == nil { // no other pod has it, and such volumes are not staged
		return j.claimVolume(folder)
	}
	return j.alone(ctx, j.key(), func(ctx context.Context) error {
		if slices.Contains(j.pv.Spec.AccessModes, v1.ReadWriteOncePod) {
			released := j.released()
			published, lost, err := j.published()
			if uids := others(published, j.record, string(j.p.Pod.UID)); len(uids) > 0 {
				why := messages.Cause{Code: messages.CauseVolumeInUse, Name: j.pv.Name, Detail: uids[0]}
				// Kubernetes' suite waits for an Event with the words before the colon.
				return kinds.WaitError{Over: released, Err: why.Errorf("volume uses the ReadWriteOncePod access mode and is "+
					"already in use by another pod: pod %s has PersistentVolume %s", uids[0], j.pv.Name)}
			}
			if err = errors.Join(err, j.mayHave(lost, stagedKey(j.record))); err != nil {
				return err
			}
		}
		if err := j.claimVolume(folder); err != nil || !j.driver.Can(csi.Stages) {
			return err
		}
		if j.volume.Block {
			return j.stageDevice(ctx)
		}
		return j.stageVolume(ctx)
	})
}

func (j *job) stageVolume(ctx context.Context) error {
	at := filepath.Join(j.csiFolder(), stagedKey(j.record))
	if err := os.MkdirAll(at, kinds.FolderMode); err != nil {
		return err
	}
	root, err := safepath.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	if is, err := mountedAlive(ctx, root, csi.GlobalMount); err != nil || is && j.isReady(stagedKey(j.record)) {
		return err
	} else if !is {
		if err := root.MkdirAll(csi.GlobalMount, kinds.FolderMode); err != nil {
			return err
		}
	}
	if err := writeRecord(csi.Record{Driver: j.record.Driver, Handle: j.record.Handle}, root, "."); err != nil {
		return err
	}
	if err := j.callStage(ctx); err != nil {
		return err
	}
	if err := j.recordMount(root, ".", csi.GlobalMount); err != nil {
		return err
	}
	j.setReady(j.key(), true)
	return nil
}

func (j *job) callStage(ctx context.Context) error {
	j.touch(false)
	j.setStager(j.key(), j.p.Pod.Namespace)
	v := j.volume
	v.Secrets = j.stage
	v.Attributes = j.pv.Spec.CSI.VolumeAttributes // without the attributes of a pod
	return j.driver.Stage(ctx, v)
}

// changesOwner reports whether the agent gives the volume to the pod's fsGroup, by the fsGroupPolicy of the driver (KEP-1682).
func (j *job) changesOwner() bool {
	switch policy := ptr.Deref(j.spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy); {
	case j.volume.Group == nil || j.readOnly || policy == storagev1.NoneFSGroupPolicy || j.driver.Can(csi.MountGroup):
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	}
	return j.volume.FSType != "" && (j.inline != nil || slices.ContainsFunc(j.pv.Spec.AccessModes,
		func(m v1.PersistentVolumeAccessMode) bool { return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod }))
}

// Unmount has the driver unmount the volume. Without a record, e.g. because the agent ended before it wrote one, the driver was
// never called for the volume.
func (c csiVolume) Unmount(ctx context.Context, p kinds.Folder, volume string) error {
	folder := kinds.VolumeFolder(csi.PluginName, volume)
	target := filepath.Join(folder, csi.MountFolder)
	r, err := csi.Read(p.Root, folder)
	if err != nil && c.s != nil {
		if found := c.s.recordOfMount(ctx, p, folder); found != nil {
			r, err = *found, nil
		}
	}
	switch {
	case kinds.IsAbsent(err):
	case err != nil: // a kubelet was interrupted: a mount stays, because its driver is unknown
		p.Node.Log.Warn("the record of a CSI volume cannot be read; what is mounted stays",
			"pod", filepath.Base(p.Path()), "volume", volume, "error", err)
		if err := errors.Join(checkUnmounted(ctx, p.Root, target), p.RemoveEmpty(target)); err != nil {
			return err // the record stays, as it may be all that is known of the data
		}
	case c.s == nil:
		return fmt.Errorf("volume %s is of CSI driver %s, and there are none without an API server", volume, r.Driver)
	default:
		p.SetPlugin(metricName(r), false)
		driver, err := c.s.Drivers.Get(r.Driver)
		if err != nil {
			return err
		}
		if err := c.s.unpublish(ctx, driver, r, filepath.Base(p.Path()), filepath.Join(p.Path(), target)); err != nil {
			return err
		}
	}
	defer c.s.touch(true)
	return release(ctx, p.Root, folder, csi.MountFolder)
}

// unpublish has the driver unmount a pod's volume. It returns an error for an attached volume that is mounted elsewhere too:
// the mount then shows which file system to look for, also to the next agent.
func (s *Storage) unpublish(ctx context.Context, driver *csi.Driver, r csi.Record, uid, target string) error {
	if !s.mayBeAttached(ctx, r) {
		return driver.Unpublish(ctx, s.ownerOf(uid, cmp.Or(r.Volume, r.Handle)), r.Handle, target)
	}
	ref, err := s.referenceAt(r, target)
	if err = errors.Join(err, ref.check()); err != nil {
		return err
	}
	if err := driver.Unpublish(ctx, s.ownerOf(uid, cmp.Or(r.Volume, r.Handle)), r.Handle, target); err != nil {
		return err
	}
	return ref.check() // a part may have been bound meanwhile
}

// release removes the record of a volume that its driver has undone, and then its empty folders. Data that was written while
// nothing was mounted is kept. It may be cut off at any point and done again.
func release(ctx context.Context, root *safepath.Root, folder, mount string) error {
	target := filepath.Join(folder, mount)
	if err := checkUnmounted(ctx, root, target); err != nil {
		return err
	}
	if err := csi.Remove(root, folder); err != nil {
		return err
	}
	return errors.Join(root.RemoveEmpty(target), root.RemoveEmpty(folder))
}

// checkUnmounted returns an error if the target is still mounted, or if that is unknown.
func checkUnmounted(ctx context.Context, root *safepath.Root, target string) error {
	is, err := mountedAlive(ctx, root, target)
	if is {
		return errors.Join(fmt.Errorf("the driver left %s mounted", filepath.Join(root.Path(), target)), err)
	}
	return err
}

// mountedAlive reports whether a live file system is mounted on name. It detaches the mounts of dead servers.
func mountedAlive(ctx context.Context, root *safepath.Root, name string) (bool, error) {
	for {
		is, err := root.IsMountPoint(name)
		if err != nil || !is {
			return false, kinds.IgnoreAbsent(err)
		}
		if !safepath.IsDead(root.AskServer(ctx, name)) {
			return true, nil
		}
		if err := root.Detach(name); err != nil {
			return true, err
		}
	}
}
