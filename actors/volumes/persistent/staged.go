package persistent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/supervisors"
)

// stagedPrefix begins the keys of operations on a volume for all its pods.
const stagedPrefix = "staged/"

// stagedKey returns the volume's folder among the staged volumes: the driver and a hash of the handle.
func stagedKey(r csi.Record) string {
	return filepath.Join(r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))))
}

// stagedResult is the result of one operation on a volume. No operation joins another.
type stagedResult struct{ err error }

// alone calls do while no other operation on the volume is in progress on this node.
func (s *Storage) alone(ctx context.Context, key string, do func(context.Context) error) error {
	never := func(stagedResult) bool { return false }
	out, err := reconcile.Join(ctx, s.Operations, stagedPrefix+key, kinds.OperationTimeout, never,
		func(ctx context.Context) stagedResult { return stagedResult{do(ctx)} })
	return errors.Join(err, out.err)
}

// stagedDriver unstages volumes that no pod has any more. That is its only task: mounts of pods stage volumes themselves, after
// they have written the pod's record to the disk.
type stagedDriver struct{ *Storage }

// Unstager is the reconciler that unstages volumes.
type Unstager = *reconcile.Reconciler[struct{}, struct{}]

// NewUnstager makes an Unstager. report is called after each attempt, with the folder of the volume and the error.
func NewUnstager(s *Storage, report func(ctx supervisors.Context, folder string, err error)) Unstager {
	return reconcile.New(reconcile.Options[struct{}, struct{}]{
		Name: "staged volume", Driver: stagedDriver{s}, Operations: s.Operations, Prefix: stagedPrefix,
		OperationTimeout: kinds.OperationTimeout, Pod: func(string) string { return "" },
		Report: func(ctx supervisors.Context, r reconcile.Report[struct{}, struct{}]) {
			report(ctx, s.stagedFolder(r.Key), r.Err)
		},
		Rules: reconcile.Rules[struct{}, struct{}]{
			Same: func(_, _ struct{}) bool { return true }, Retry: kinds.Retry,
			Timeout: time.Minute, RemoveTimeout: 3 * time.Minute,
		},
	})
}

// stagedFolder returns the folder of a key of Inventory.
func (s *Storage) stagedFolder(key string) string {
	if name, is := strings.CutPrefix(key, fileSystems); is {
		return filepath.Join(s.fileSystemsFolder(), name)
	}
	if folder, is := strings.CutPrefix(key, iscsiPrefix); is {
		return filepath.Join(iscsi.Top(s.RootDir), folder)
	}
	if name, is := strings.CutPrefix(key, localName+"/"); is { // of a pod's device
		return filepath.Join(s.RootDir, "plugins", localName, csi.DevicesFolder, name)
	}
	return filepath.Join(s.csiFolder(), key)
}

// Unused returns the folders of volumes that no pod has any more, and that are still staged or mounted for the node. Volumes with
// an unreadable record, or whose driver is not registered, are omitted. It reads the disk, and is safe for concurrent use.
func (s *Storage) Unused(ctx context.Context) (folders []string) {
	keys, _ := stagedDriver{s}.Inventory(ctx) // the Unstager reports the error
	for _, key := range keys {
		folder := s.stagedFolder(key)
		if name, is := strings.CutPrefix(folder, s.csiFolder()+"/"); is && !strings.HasPrefix(name, csi.DevicesFolder+"/") {
			if _, err := s.Drivers.Get(filepath.Dir(name)); err != nil {
				continue
			}
		}
		folders = append(folders, folder)
	}
	return folders
}

// Ensure implements reconcile.Driver. It is never called.
func (stagedDriver) Ensure(context.Context, reconcile.Operation[struct{}, struct{}]) (none struct{}, err error) {
	return none, nil
}

// Inventory implements reconcile.Driver. It lists the staged volumes without a record of any pod, and the folders of agents that
// were killed before they had written the record.
func (d stagedDriver) Inventory(context.Context) (out []string, err error) {
	out, err = d.begun()
	devices, devicesErr := d.unusedDevices()
	mounts, mountsErr := d.unusedFileSystems()
	units, unitsErr := d.unusedISCSI()
	out, err = slices.Concat(out, devices, mounts, units), errors.Join(err, devicesErr, mountsErr, unitsErr)
	staged, _, stagedErr := d.staged()
	if err = errors.Join(err, stagedErr); len(staged) == 0 {
		return out, err // an unreadable record stays, and is reported by InUse
	}
	published, lost, publishedErr := d.published()
	if publishedErr != nil {
		return out, errors.Join(err, publishedErr)
	}
	for key, r := range staged {
		if !has(published, r) && d.mayHave(lost, key) == nil {
			out = append(out, key)
		}
	}
	return out, err
}

// begun lists the folders of volumes that have neither a record nor any data, and on which nothing is mounted.
func (d stagedDriver) begun() (out []string, err error) {
	root, err := safepath.OpenRoot(d.csiFolder())
	if err != nil {
		return nil, kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // read only
	drivers, err := root.Names(".")
	for _, driver := range drivers {
		if driver == csi.DevicesFolder { // of block volumes
			continue
		}
		volumes, listErr := kinds.NamesIn(root, driver)
		err = errors.Join(err, listErr)
		for _, volume := range volumes {
			key := filepath.Join(driver, volume)
			at := filepath.Join(key, csi.GlobalMount)
			names, namesErr := kinds.NamesIn(root, key)
			is, isErr := root.IsMountPoint(at)
			if other := slices.ContainsFunc(names, func(name string) bool {
				return name != csi.GlobalMount && name != csi.NewRecordFile
			}); other || is || namesErr != nil || kinds.IgnoreAbsent(isErr) != nil {
				continue
			}
			if data, dataErr := kinds.NamesIn(root, at); dataErr == nil && len(data) == 0 {
				out = append(out, key)
			}
		}
	}
	return out, err
}

func has(published map[string]csi.Record, r csi.Record) bool {
	return len(others(published, r, "")) > 0
}

// others returns the pods that have the volume, except one.
func others(published map[string]csi.Record, r csi.Record, but string) (uids []string) {
	for key, p := range published {
		if uid := podOf(key); uid != but && p.Same(r) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Remove implements reconcile.Driver. The volume stays if a pod has obtained it meanwhile.
func (d stagedDriver) Remove(ctx context.Context, key string) error {
	if volume, is := strings.CutPrefix(key, csi.DevicesFolder+"/"); is {
		return d.removeDevice(ctx, volume)
	}
	if name, is := strings.CutPrefix(key, localName+"/"); is {
		volume, uid, _ := strings.Cut(name, "/")
		return d.removeMap(volume, uid)
	}
	if name, is := strings.CutPrefix(key, fileSystems); is {
		return d.unmountFileSystem(ctx, name)
	}
	if folder, is := strings.CutPrefix(key, iscsiPrefix); is {
		return d.removeUnit(ctx, folder)
	}
	root, err := safepath.OpenRoot(d.csiFolder())
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // read only
	r, err := csi.Read(root, key)
	switch {
	case kinds.IsAbsent(err): // the driver has undone it
		return kinds.IgnoreAbsent(release(ctx, root, key, csi.GlobalMount))
	case err != nil:
		return err
	}
	published, lost, err := d.published()
	if err != nil || has(published, r) {
		return err
	}
	if err := d.mayHave(lost, key); err != nil {
		return err
	}
	driver, err := d.Drivers.Get(r.Driver)
	if err != nil {
		return err
	}
	at := filepath.Join(root.Path(), key, csi.GlobalMount)
	ref, err := d.referenceAt(r, at)
	if err = errors.Join(err, ref.check()); err != nil {
		return err
	}
	d.setReady(key, false)
	defer d.touch(false)
	if driver.Can(csi.Stages) {
		began, err := time.Now(), driver.Unstage(ctx, d.stagerOf(key, r.Handle), r.Handle, at)
		if metrics.Stored(metricName(r), "unmount_device", began, err); err != nil {
			return err
		}
	}
	if err := release(ctx, root, key, csi.GlobalMount); err != nil {
		return err
	}
	d.setStager(key, "")
	d.Log.Info("unstaged a volume", "driver", r.Driver, "folder", filepath.Join(root.Path(), key))
	return nil
}
