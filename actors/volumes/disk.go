package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// disk mounts and unmounts volumes. It has no state of its own and is safe for concurrent use.
type disk struct {
	asleep  func() time.Duration // nil in tests of the disk alone: never
	rootDir string
	plugins []kinds.Plugin
	ops     Operations
	node    kinds.Facts
	storage *persistent.Storage // nil without an API server
	timeouts
}

// timeouts limit how long a hung volume delays the other volumes of its mount, and the unmount of its pod.
type timeouts struct{ volume, settle time.Duration }

// defaultTimeouts are shorter than the actor's own, so that the actor still receives the result.
var defaultTimeouts = timeouts{volume: mountTimeout * 3 / 4, settle: unmountTimeout * 2 / 3}

// mountOutcome is the result of mounting a pod's volumes.
type mountOutcome struct {
	only    []string // the requested volumes; empty: all
	volumes []volumeOutcome
}

// stillMounted reports whether all of a pod's volumes are as mountPod left them.
func (d disk) stillMounted(uid string, pod *v1.Pod, s state) (is bool) {
	err := d.inFolder(kinds.OpenPod, uid, pod, func(folder kinds.Folder) error {
		is = !slices.ContainsFunc(podspec.UsedVolumes(pod), func(v *v1.Volume) bool {
			if kinds.IsNormalWait(s.volumes[v.Name].err) {
				return false
			}
			p, err := kinds.PluginFor(d.plugins, v)
			return err != nil || !p.Mounted(folder, v)
		})
		return nil
	})
	return is && err == nil
}

// reread returns the state without the mounts that are gone from volumes which need none: a container may have mounted something
// on an emptyDir.
func (d disk) reread(uid string, pod *v1.Pod, s state) state {
	volumes := maps.Clone(s.volumes)
	_ = d.inFolder(kinds.OpenPod, uid, pod, func(folder kinds.Folder) error { // it could be opened a moment ago
		for name, v := range volumes {
			if !v.mounts {
				continue
			}
			if is, err := folder.HasMount(v.path); err == nil {
				v.mounts = is
				volumes[name] = v
			}
		}
		return nil
	})
	s.volumes = volumes
	return s
}

// unmountPod unmounts all volumes of a pod, and removes its folder if remove is set. The error names everything that remains.
func (d disk) unmountPod(ctx context.Context, uid string, remove bool) error {
	d.node.NFS.Stop(uid) // again: a mount in progress may have started another program
	if err := d.settle(ctx, uid); err != nil {
		return err
	}
	d.node.Forget(types.UID(uid)) // again: a mount in progress may have obtained a token
	pods, err := kinds.OpenPods(d.rootDir)
	if err != nil {
		return err
	}
	defer d.close(pods)
	folder, err := kinds.OpenPod(pods, uid, nil)
	switch {
	case kinds.IsAbsent(err), kinds.IsPermanent(err): // the pod has no folder
		d.storage.Forget(uid)
		return nil
	case err != nil:
		return err
	}
	defer d.close(folder.Root)
	folder.Node = d.node
	names, err := kinds.NamesIn(folder.Root, kinds.VolumeFolder(csi.PluginName, ""))
	devices, devicesErr := kinds.NamesIn(folder.Root, filepath.Dir(csi.DeviceLink("_")))
	d.storage.Undoing(uid, err != nil || devicesErr != nil || len(names)+len(devices) > 0)
	ctx, freed := safepath.CountFreed(ctx)
	unmountErr := errors.Join(subpath.UnbindAll(folder.Root), d.unmountFound(ctx, folder), d.storage.UnmapDevices(ctx, folder))
	mounts, err := kinds.MountsIn(folder)
	if err != nil {
		return errors.Join(unmountErr, err)
	}
	held := heldByOthers(folder)
	drivers := kinds.VolumeFolder(csi.PluginName, "")
	if held != nil || mountedIn(mounts, folder, drivers) || mountedIn(mounts, folder, subpath.Folder) {
		d.storage.Undoing(uid, true)
	} else {
		d.storage.Forget(uid) // other mounts keep the folder, not the pod
	}
	// Plugins need their notes to unmount. While anything is mounted, the whole folder stays.
	if len(mounts) > 0 {
		held = errors.Join(kinds.StillMounted(mounts), held)
	}
	if held != nil {
		return errors.Join(unmountErr, held) // the cause first
	}
	if remove && unmountErr == nil {
		if unmountErr = kinds.RemovePod(ctx, pods, folder, uid); unmountErr == nil {
			d.node.Log.Info("removed a pod's folder and volumes", "pod", uid, "freedBytes", freed.Load())
			return nil
		}
	}
	return errors.Join(unmountErr, cutKept(folder.Root))
}

// mountedIn reports whether something is mounted on a folder of the pod, or below it.
func mountedIn(mounts []*mountinfo.Info, folder kinds.Folder, name string) bool {
	at := filepath.Join(folder.Path(), name)
	return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return strings.HasPrefix(m.Mountpoint+"/", at+"/") })
}

// heldByOthers returns an error if a CSI driver still has a volume of the pod, by its record, or if a block device is left. The
// API server must detach neither.
func heldByOthers(folder kinds.Folder) error {
	devices, err := kinds.FoundDevices(folder)
	for _, d := range devices {
		path := filepath.Join(folder.Path(), d.Device())
		if d.Plugin == kinds.Escaped(csi.PluginName) {
			err = errors.Join(err, fmt.Errorf("the CSI driver of block device %s has not released it", path))
		} else {
			err = errors.Join(err,
				fmt.Errorf("%s is a block device that a kubelet mapped, and only a kubelet can unmap it", path))
		}
	}
	volumes, listErr := kinds.NamesIn(folder.Root, kinds.VolumeFolder(csi.PluginName, ""))
	err = errors.Join(err, listErr)
	for _, v := range volumes {
		record := filepath.Join(kinds.VolumeFolder(csi.PluginName, v), csi.RecordFile)
		if _, statErr := folder.Lstat(record); !kinds.IsAbsent(statErr) {
			err = errors.Join(err, statErr, fmt.Errorf("the CSI driver of volume %s has not released it", v))
		}
	}
	return err
}

// unmountFound unmounts each volume on the disk with the plugin of its kind.
func (d disk) unmountFound(ctx context.Context, folder kinds.Folder) error {
	found, err := kinds.FoundVolumes(folder)
	if err != nil {
		return err
	}
	mounts, err := kinds.MountsIn(folder)
	if err != nil {
		return err
	}
	mounts, detachErr := d.detachDead(ctx, folder, mounts)
	errs := []error{detachErr}
	bound := mountedIn(mounts, folder, subpath.Folder)
	for _, f := range found {
		p := d.pluginOf(f)
		if bound && p.Name() == csi.PluginName {
			errs = append(errs, fmt.Errorf("parts of volumes are still bound, so CSI volume %s is not unmounted", f.Volume))
			continue
		}
		// For example, a container propagated a mount to the host. CSI drivers are called anyway: they decide themselves.
		if others := kinds.Foreign(mounts, folder, p, f); len(others) > 0 && p.Name() != csi.PluginName {
			errs = append(errs, kinds.StillMounted(others))
			continue
		}
		name := p.Name()
		folder.SetPlugin = func(plugin string, _ bool) { name = plugin }
		began, err := time.Now(), p.Unmount(ctx, folder, f.Volume)
		metrics.Stored(name, "volume_unmount", began, err)
		if err != nil && p.Name() == csi.PluginName {
			err = fmt.Errorf("volume %s: %w", f.Volume, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// detachDead detaches the mounts of dead servers in a pod's folder, and returns the remaining mounts. It keeps the mounts of
// hung servers, and the mounts of CSI drivers, which undo them. Mounts below either are not checked. The pod's containers have
// ended, so that a FUSE mount that only its own user may access is useless even if its server is alive.
func (d disk) detachDead(ctx context.Context, folder kinds.Folder, mounts []*mountinfo.Info) (left []*mountinfo.Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	answers := d.askServers(ctx, folder, mounts)
	var detached []string
	for _, m := range mounts {
		name, relErr := filepath.Rel(folder.Path(), m.Mountpoint)
		answer, asked := answers[m.Mountpoint]
		switch {
		case slices.ContainsFunc(detached, func(at string) bool { return isBelow(m, at) }):
			continue // it is detached with the mount above it
		case !asked || relErr != nil:
			left = append(left, m)
			continue
		case slices.Contains(detached, m.Mountpoint): // another mount below the one that was detached
			answer = folder.AskServer(ctx, name)
		}
		if !safepath.IsDead(answer) && !(errors.Is(answer, unix.EACCES) && strings.HasPrefix(m.FSType, "fuse")) {
			left = append(left, m)
			continue
		}
		d.node.Log.Warn("detached a mount whose server is gone", "pod", filepath.Base(folder.Path()), "mount", m.Mountpoint,
			"fileSystem", m.FSType, "error", answer)
		detached, err = append(detached, m.Mountpoint), errors.Join(err, folder.Detach(name))
	}
	return left, err
}

// askServers asks the servers of mounts in a pod's folder, and returns their errors by mount point. It asks them concurrently,
// so that hung servers share one deadline. A mount below another is asked after the other has answered, and not asked if the
// other is dead, hung or of a CSI driver.
func (d disk) askServers(ctx context.Context, folder kinds.Folder, mounts []*mountinfo.Info) map[string]error {
	var mu sync.Mutex
	answers := map[string]error{}
	silent := []string{filepath.Join(folder.Path(), kinds.VolumeFolder(csi.PluginName, ""))}
	waiting := slices.DeleteFunc(slices.Clone(mounts), func(m *mountinfo.Info) bool { return m.Mountpoint == folder.Path() })
	for len(waiting) > 0 {
		waiting = slices.DeleteFunc(waiting, func(m *mountinfo.Info) bool {
			return slices.ContainsFunc(silent, func(at string) bool { return isBelow(m, at) })
		})
		first := slices.DeleteFunc(slices.Clone(waiting), func(m *mountinfo.Info) bool {
			return slices.ContainsFunc(waiting, func(o *mountinfo.Info) bool { return isBelow(m, o.Mountpoint) })
		})
		var asking sync.WaitGroup
		for _, m := range first {
			asking.Go(func() {
				err := guard.Call(d.node.Log, "ask a file server", func() error {
					name, err := filepath.Rel(folder.Path(), m.Mountpoint)
					if err != nil {
						return err
					}
					return folder.AskServer(ctx, name)
				})
				mu.Lock()
				defer mu.Unlock()
				if answers[m.Mountpoint] = err; err != nil {
					silent = append(silent, m.Mountpoint)
				}
			})
		}
		asking.Wait()
		waiting = slices.DeleteFunc(waiting, func(m *mountinfo.Info) bool { _, asked := answers[m.Mountpoint]; return asked })
	}
	return answers
}

func isBelow(m *mountinfo.Info, at string) bool { return strings.HasPrefix(m.Mountpoint, at+"/") }

func (d disk) close(root *safepath.Root) {
	if err := root.Close(); err != nil {
		d.node.Log.Warn("closing a folder", "path", root.Path(), "error", err)
	}
}

// podFolders lists the folders of pods on the disk, sorted. Files belong to no pod and stay.
func (d disk) podFolders() ([]string, error) {
	pods, err := kinds.OpenPods(d.rootDir)
	if err != nil {
		return nil, err
	}
	defer d.close(pods)
	names, err := pods.Names(".")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := pods.Lstat(filepath.Clean(name))
		return err != nil || info.Mode().Type() != fs.ModeDir
	})
	slices.Sort(names)
	return names, nil
}
