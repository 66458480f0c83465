package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// The names of files and folders. They are the kubelet's.
const (
	// PluginName is the name of the kind of volume, in folders, in metrics and among the Node's volumes.
	PluginName = "kubernetes.io/csi"
	// RecordFile lies beside the folder of a mount: a pod's, or the one that is staged for all pods.
	RecordFile = "vol_data.json"
	// NewRecordFile is a record that is being written.
	NewRecordFile = RecordFile + ".new"
	// MountFolder is where a pod's volume is published, and GlobalMount where it is staged.
	MountFolder = "mount"
	GlobalMount = "globalmount"
)

// Record identifies the volume of a folder. It is written before the first call to the driver, and removed after the last: a
// record exists while any part of the volume may be on the node.
type Record struct {
	Volume    string `json:"specVolID,omitempty"` // the name of the PersistentVolume, or of the pod's own volume
	Handle    string `json:"volumeHandle"`
	Driver    string `json:"driverName"`
	Node      string `json:"nodeName,omitempty"`
	Attached  string `json:"attachmentID,omitempty"` // the name of the VolumeAttachment
	Lifecycle string `json:"volumeLifecycleMode,omitempty"`
	// Mount describes the driver's mount, as the agent last saw it. It finds other mounts of the file system after this one is
	// gone. A kubelet ignores it.
	Mount string `json:"playletMount,omitempty"`
}

// Same reports whether two records are of the same volume of the same driver.
func (r Record) Same(o Record) bool { return r.Driver == o.Driver && r.Handle == o.Handle }

const maxRecord = 64 << 10

// Write writes a record into a folder, atomically.
func (r Record) Write(root *safepath.Root, folder string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(folder, RecordFile)
	fresh := filepath.Join(folder, NewRecordFile)
	f, err := root.OpenBeneath(fresh, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Rename(fresh, name)
}

// Remove removes the record of a folder, and the partial file of an interrupted write. Missing files are no error.
func Remove(root *safepath.Root, folder string) error {
	for _, name := range []string{RecordFile, NewRecordFile} {
		if err := root.Unlink(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read reads the record of a folder. The error wraps fs.ErrNotExist if there is none.
func Read(root *safepath.Root, folder string) (Record, error) {
	var r Record
	name := filepath.Join(folder, RecordFile)
	f, err := root.OpenBeneath(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err = errors.Join(err, f.Close()); err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s cannot be read: %w", filepath.Join(root.Path(), name), err)
	}
	if r.Driver == "" || r.Handle == "" {
		return r, fmt.Errorf("%s names no driver or no volume", filepath.Join(root.Path(), name))
	}
	return r, nil
}
