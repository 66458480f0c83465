package csi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// The folders of block volumes are the kubelet's, so that either agent takes over from the other. A volume has the name of its
// PersistentVolume:
//
//	<root-dir>/plugins/kubernetes.io/csi/volumeDevices/<volume>/data/vol_data.json  the record
//	<root-dir>/plugins/kubernetes.io/csi/volumeDevices/<volume>/dev/<uid>           the map for a pod (package blockmap)
//	<root-dir>/plugins/kubernetes.io/csi/volumeDevices/staging/<volume>             a folder for the driver
//	<root-dir>/plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>       the device, which the driver makes for a pod
//	<root-dir>/pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>                  a link to the device
const (
	// DevicesFolder is the name of the folder in the plugin's folder, and in the folder of a pod.
	DevicesFolder = "volumeDevices"

	stagingFolder, publishFolder = "staging", "publish"
)

// Places of a block volume in the folder that OpenDevices opens.
func (d Devices) record(volume string) string    { return filepath.Join(volume, "data") }
func (d Devices) published(volume string) string { return filepath.Join(publishFolder, volume) }

// Maps returns the folder with the volume's maps for pods.
func (d Devices) Maps(volume string) string { return filepath.Join(volume, "dev") }

// Staging returns the folder in which a driver stages the volume.
func (d Devices) Staging(volume string) string { return filepath.Join(stagingFolder, volume) }

// Target returns the place where a driver makes the device of the volume for a pod.
func (d Devices) Target(volume, uid string) string { return filepath.Join(d.published(volume), uid) }

// DeviceLink returns the path of the link to a volume's device, in the folder of its pod.
func DeviceLink(volume string) string {
	return kinds.FoundVolume{Plugin: kinds.Escaped(PluginName), Volume: volume}.Device()
}

// Devices is the open folder of block volumes. Pods do not reach it.
type Devices struct{ *safepath.Root }

// DevicesPath returns the path of the folder of block volumes.
func DevicesPath(rootDir string) string {
	return filepath.Join(rootDir, "plugins", PluginName, DevicesFolder)
}

// OpenDevices opens the folder of block volumes. The error wraps fs.ErrNotExist if there is none.
func OpenDevices(rootDir string) (Devices, error) {
	root, err := safepath.OpenRoot(DevicesPath(rootDir))
	return Devices{root}, err
}

// MakeDevices makes and opens the folder of block volumes.
func MakeDevices(rootDir string) (Devices, error) {
	if err := os.MkdirAll(DevicesPath(rootDir), kinds.FolderMode); err != nil {
		return Devices{}, err
	}
	return OpenDevices(rootDir)
}

// CheckDevice returns an error if a block volume of this name cannot have folders.
func CheckDevice(volume string) error {
	if volume == stagingFolder || volume == publishFolder {
		return errors.New("a PersistentVolume of the name " + volume + " cannot be a block device of a CSI driver: " +
			"the name is one of the kubelet's folders")
	}
	return safepath.CheckElement(volume)
}

// Read reads the record of a volume, like the function Read.
func (d Devices) Read(volume string) (Record, error) { return Read(d.Root, d.record(volume)) }

// Write writes the record of a volume. It keeps the Mount of an earlier record of the same volume, unless the new one has its
// own.
func (d Devices) Write(volume string, r Record) error {
	if was, err := d.Read(volume); err == nil && was.Same(r) {
		if r.Mount == "" {
			r.Mount = was.Mount
		}
		if r == was {
			return nil
		}
	}
	if err := d.MkdirAll(d.record(volume), kinds.FolderMode); err != nil {
		return err
	}
	return r.Write(d.Root, d.record(volume))
}

// Has reports whether the folder has a part of the volume for a pod.
func (d Devices) Has(volume, uid string) (bool, error) {
	for _, name := range []string{d.Target(volume, uid), filepath.Join(d.Maps(volume), uid)} {
		if _, err := d.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// Volumes lists the volumes with a part in the folder.
func (d Devices) Volumes() (out []string, err error) {
	for _, folder := range []string{".", stagingFolder, publishFolder} {
		names, listErr := kinds.NamesIn(d.Root, folder)
		err = errors.Join(err, listErr)
		for _, name := range names {
			if CheckDevice(name) == nil && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, err
}

// Clear removes the record of a volume and its folders, which have to be empty. A driver may leave nodes and links. It may be cut
// off at any point and done again.
func (d Devices) Clear(volume string) error {
	for _, folder := range []string{d.Staging(volume), d.published(volume), d.Maps(volume)} {
		names, err := kinds.NamesIn(d.Root, folder)
		for _, name := range names {
			err = errors.Join(err, blockmap.Drop(d.Root, filepath.Join(folder, name)))
		}
		if err = errors.Join(err, d.RemoveEmpty(folder)); err != nil {
			return err
		}
	}
	if err := Remove(d.Root, d.record(volume)); err != nil {
		return err
	}
	return errors.Join(d.RemoveEmpty(d.record(volume)), d.RemoveEmpty(volume))
}

// Device is a block volume on the disk.
type Device struct {
	Record Record
	Err    error // of reading the record
	Staged bool  // it has a folder for staging
	Pods   map[string]DevicePod
}

// DevicePod is the part of a block volume that a pod has.
type DevicePod struct {
	Alive bool // the pod has a folder
	Made  bool // there is a map, or a device that a driver made; otherwise only a link
}

// Lost reports whether a driver may have the volume although no record names the driver.
func (d Device) Lost() bool {
	for _, p := range d.Pods {
		if d.Err != nil && p.Made {
			return true
		}
	}
	return d.Err != nil && d.Staged
}

// Used reports whether a pod with a folder has the volume.
func (d Device) Used() bool {
	for _, p := range d.Pods {
		if p.Alive {
			return true
		}
	}
	return false
}

// FindDevices lists the block volumes on the disk by name. An error is returned beside those that were found.
func FindDevices(rootDir string) (map[string]Device, error) {
	out := map[string]Device{}
	pods, err := safepath.OpenRoot(filepath.Join(rootDir, kinds.PodsFolder))
	if err != nil {
		return out, kinds.IgnoreAbsent(err) // the agent makes it first
	}
	defer pods.Close() //nolint:errcheck // read only
	var volumes []string
	devices, err := OpenDevices(rootDir)
	if err == nil {
		defer devices.Close() //nolint:errcheck // read only
		volumes, err = devices.Volumes()
	}
	err = kinds.IgnoreAbsent(err)
	for _, volume := range volumes {
		d, findErr := devices.find(volume, pods)
		out[volume], err = d, errors.Join(err, findErr)
	}
	uids, listErr := pods.Names(".")
	err = errors.Join(err, listErr)
	for _, uid := range uids {
		links, linksErr := kinds.NamesIn(pods, filepath.Join(uid, filepath.Dir(DeviceLink("_"))))
		err = errors.Join(err, linksErr)
		for _, volume := range links {
			d, known := out[volume]
			if !known {
				d = Device{Err: fs.ErrNotExist, Pods: map[string]DevicePod{}}
				out[volume] = d
			}
			d.Pods[uid] = DevicePod{Alive: true, Made: d.Pods[uid].Made}
		}
	}
	return out, err
}

// find reads all of a volume but the links of pods.
func (d Devices) find(volume string, pods *safepath.Root) (Device, error) {
	out := Device{Pods: map[string]DevicePod{}}
	out.Record, out.Err = d.Read(volume)
	_, err := d.Lstat(d.Staging(volume))
	out.Staged = !errors.Is(err, fs.ErrNotExist)
	err = kinds.IgnoreAbsent(err)
	for _, folder := range []string{d.published(volume), d.Maps(volume)} {
		uids, listErr := kinds.NamesIn(d.Root, folder)
		err = errors.Join(err, listErr)
		for _, uid := range uids {
			_, podErr := pods.Lstat(uid)
			out.Pods[uid] = DevicePod{Alive: !errors.Is(podErr, fs.ErrNotExist), Made: true}
		}
	}
	return out, err
}
