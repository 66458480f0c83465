// Package leftover finds folders of volumes that the agent keeps because it cannot undo them: data where nothing is mounted,
// and state of a kubelet that only a kubelet can undo. It reads the disk and calls no server. Anything else that keeps a pod's
// folder is in the error of its removal, which the volumes actor reports.
package leftover

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

const (
	csiPlugin   = "kubernetes.io~csi"
	localPlugin = "kubernetes.io~local-volume"
	nfsPlugin   = "kubernetes.io~nfs"
	iscsiPlugin = "kubernetes.io~iscsi"
	devices     = csi.DevicesFolder
)

// Find lists the folders, sorted by path. On a standalone node it includes CSI volumes: without an API server there are no
// drivers. An error is returned beside the folders that were found.
func Find(rootDir string, standalone bool) ([]messages.HeldFolder, error) {
	root, err := safepath.OpenRoot(rootDir)
	if err != nil {
		return nil, kinds.IgnoreAbsent(err)
	}
	f := finder{root: root, standalone: standalone}
	f.devices, err = csi.FindDevices(rootDir)
	f.add(err)
	f.pods()
	f.staged()
	f.plugins()
	f.add(root.Close())
	slices.SortFunc(f.found, func(a, b messages.HeldFolder) int { return cmp.Compare(a.Path, b.Path) })
	return f.found, errors.Join(f.errs...)
}

// Explain returns the folders of Find, each with a sentence and a remedy.
func Explain(rootDir string, standalone bool) ([]explain.Finding, error) {
	folders, err := Find(rootDir, standalone)
	var out []explain.Finding
	for _, f := range folders {
		out = append(out, explain.Held(f))
	}
	return out, err
}

type finder struct {
	root       *safepath.Root
	standalone bool
	devices    map[string]csi.Device // of CSI drivers, by volume

	found []messages.HeldFolder
	errs  []error
}

func (f *finder) add(err error) {
	if kinds.IgnoreAbsent(err) != nil {
		f.errs = append(f.errs, err)
	}
}

func (f *finder) hold(code messages.HeldCode, uid, plugin, folder string) {
	f.found = append(f.found, messages.HeldFolder{
		Code: code, UID: uid, Plugin: plugin, Path: filepath.Join(f.root.Path(), folder),
	})
}

func (f *finder) names(elements ...string) []string {
	names, err := kinds.NamesIn(f.root, filepath.Join(elements...))
	f.add(err)
	return names
}

// pods looks at the volumes of all pods.
func (f *finder) pods() {
	for _, uid := range f.names(kinds.PodsFolder) {
		pod := filepath.Join(kinds.PodsFolder, uid)
		for _, plugin := range f.names(pod, "volumes") {
			at := filepath.Join(pod, "volumes", plugin)
			if is, data := f.file(at); is {
				if data {
					f.hold(messages.HeldData, uid, plugin, at)
				}
				continue
			}
			for _, volume := range f.names(at) {
				f.volume(uid, plugin, filepath.Join(at, volume))
			}
		}
		f.subPaths(uid, filepath.Join(pod, subpath.Folder))
		for _, plugin := range f.names(pod, devices) {
			for _, device := range f.names(pod, devices, plugin) {
				f.device(uid, kinds.FoundVolume{Plugin: plugin, Volume: device})
			}
		}
	}
}

// device looks at a block device of a pod. Links to devices of CSI drivers and local volumes are removed with the pod, also those
// of a kubelet.
func (f *finder) device(uid string, device kinds.FoundVolume) {
	at, code := filepath.Join(kinds.PodsFolder, uid, device.Device()), messages.HeldDevice
	info, err := f.root.Lstat(at)
	isLink := err == nil && info.Mode().Type() == fs.ModeSymlink
	switch {
	case isLink && device.Plugin == localPlugin:
		return
	case isLink && device.Plugin == csiPlugin:
		if code = f.deviceCode(device.Volume); code == "" {
			return
		}
	}
	f.hold(code, uid, device.Plugin, at)
}

// deviceCode returns why the agent cannot undo a block volume of a CSI driver; empty: it can.
func (f *finder) deviceCode(volume string) messages.HeldCode {
	switch d := f.devices[volume]; {
	case d.Lost():
		return messages.HeldDevice
	case d.Err == nil && f.standalone:
		return messages.HeldDriver
	}
	return ""
}

// subPaths looks at the binds of parts of a pod's volumes. A place on which nothing is mounted is empty, unless a container
// wrote to it after its bind was lost.
func (f *finder) subPaths(uid, folder string) {
	for _, volume := range f.names(folder) {
		for _, container := range f.names(folder, volume) {
			for _, index := range f.names(folder, volume, container) {
				place := filepath.Join(folder, volume, container, index)
				if _, data := f.look(place); data {
					f.hold(messages.HeldData, uid, "", place)
				}
			}
		}
	}
}

func (f *finder) volume(uid, plugin, folder string) {
	switch {
	case kinds.IsContent(plugin):
	case plugin == csiPlugin:
		f.recorded(uid, folder, csi.MountFolder)
	default:
		is, data := f.look(folder)
		if data {
			f.hold(messages.HeldData, uid, plugin, folder)
		} else if is && plugin != localPlugin && plugin != nfsPlugin && plugin != iscsiPlugin {
			f.hold(messages.HeldPlugin, uid, plugin, folder)
		}
	}
}

// recorded looks at a folder that has a record and a mount of CSI.
func (f *finder) recorded(uid, folder, mount string) {
	is, data := f.look(filepath.Join(folder, mount))
	if data {
		f.hold(messages.HeldData, uid, csiPlugin, filepath.Join(folder, mount))
	}
	if !is {
		return
	}
	if _, err := csi.Read(f.root, folder); err != nil {
		f.hold(messages.HeldMount, uid, csiPlugin, filepath.Join(folder, mount))
	} else if f.standalone {
		f.hold(messages.HeldDriver, uid, csiPlugin, filepath.Join(folder, mount))
	}
}

// file reports whether a file stands in place of a folder, and whether it is data: the agent removes a link or an empty file.
func (f *finder) file(path string) (is, data bool) {
	info, err := f.root.Lstat(path)
	f.add(err)
	if err != nil || info.IsDir() {
		return false, false
	}
	return true, info.Mode().Type() != fs.ModeSymlink && (!info.Mode().IsRegular() || info.Size() > 0)
}

// look reports whether something is mounted on a folder, and otherwise whether there is data in it. A file is data.
func (f *finder) look(folder string) (is, data bool) {
	is, err := f.root.IsMountPoint(folder)
	if err != nil || is {
		f.add(err)
		return is, false
	}
	if is, data := f.file(folder); is {
		return false, data
	}
	return false, len(f.names(folder)) > 0
}

const pluginsFolder = "plugins/kubernetes.io"

// staged looks at the volumes that CSI drivers staged, and at their block volumes.
func (f *finder) staged() {
	at := filepath.Join(pluginsFolder, "csi")
	for _, driver := range f.names(at) {
		if driver == devices {
			continue
		}
		for _, volume := range f.names(at, driver) {
			f.recorded("", filepath.Join(at, driver, volume), csi.GlobalMount)
		}
	}
	for volume := range f.devices {
		if code := f.deviceCode(volume); code != "" {
			f.hold(code, "", csiPlugin, filepath.Join(at, devices, volume))
		}
	}
}

// plugins looks at the mounts of a kubelet's other plugins, and at their block devices.
func (f *finder) plugins() {
	path, err := filepath.EvalSymlinks(filepath.Join(f.root.Path(), pluginsFolder))
	if err != nil {
		f.add(err)
		return
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	f.add(err)
	for _, m := range mounts {
		below := strings.TrimPrefix(m.Mountpoint, path+"/")
		plugin, inside, _ := strings.Cut(below, "/")
		// The file systems of local and iSCSI volumes are unmounted by the next sweep after their last pod.
		unused := !f.standalone && ("kubernetes.io~"+plugin == localPlugin && strings.HasPrefix(inside, "mounts/") ||
			"kubernetes.io~"+plugin == iscsiPlugin && strings.HasPrefix(inside, "iface-"))
		if below != m.Mountpoint && plugin != "csi" && !unused && !strings.HasPrefix(inside, devices+"/") {
			f.hold(messages.HeldPlugin, "", "kubernetes.io~"+plugin, filepath.Join(pluginsFolder, below))
		}
	}
	for _, plugin := range f.names(pluginsFolder) {
		if plugin == "csi" || "kubernetes.io~"+plugin == localPlugin { // the agent undoes them
			continue
		}
		for _, device := range f.names(pluginsFolder, plugin, devices) {
			f.hold(messages.HeldDevice, "", "kubernetes.io~"+plugin, filepath.Join(pluginsFolder, plugin, devices, device))
		}
	}
}
