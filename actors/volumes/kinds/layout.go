package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/messages"
)

// The folders are the kubelet's, so that either agent finds the folders of the other:
//
//	<root-dir>/pods/<uid>/volumes/<plugin>/<volume>
//	<root-dir>/pods/<uid>/volumeDevices/<plugin>/...  raw block devices: links
//	<root-dir>/pods/<uid>/plugins/<plugin>/<volume>   notes of a plugin about a volume
//	<root-dir>/pods/<uid>/volume-subpaths/...         parts of volumes (subPath): bound by the container actors, undone here
//	<root-dir>/pods/<uid>/containers/<container>      the container actors'
//	<root-dir>/pods/<uid>/etc-hosts                   the container actors'
const (
	PodsFolder    = "pods"
	pluginsFolder = "plugins"
	volumesFolder = "volumes"
	devicesFolder = "volumeDevices"
	logsFolder    = "containers"
)

// FolderMode is the mode of a pod's folders. Containers reach their volumes by mounts, and no other user needs access.
const FolderMode fs.FileMode = 0o750

// Folder is the open folder of one pod. All work in it is relative to its descriptor.
type Folder struct {
	*safepath.Root
	Pod  *v1.Pod // nil when only the folder is known
	Node Facts
	// RenewAt schedules another mount of the current volume, at the given time or earlier. Record records events after the
	// mount. Both are nil if nothing is being mounted. SetPlugin sets the plugin's name in metrics if it differs from the
	// plugin's own, and whether the volume is a block device. SetGroup sets the supplemental group that containers need for the
	// volume.
	RenewAt   func(time.Time)
	Record    func(...messages.RecordEvent)
	SetPlugin func(name string, device bool)
	SetGroup  func(group int64)
}

// OpenPods opens the folder of all pods, and creates it if it does not exist. The path of the root directory is the operator's
// and trusted.
func OpenPods(rootDir string) (*safepath.Root, error) {
	if err := os.MkdirAll(rootDir, FolderMode); err != nil {
		return nil, err
	}
	root, err := safepath.OpenRoot(rootDir)
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(PodsFolder, FolderMode); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	pods, err := root.Sub(PodsFolder)
	return pods, errors.Join(err, root.Close())
}

// checkUID returns an error if a UID cannot be the name of a folder. The UID comes from the author of the manifest.
func checkUID(uid string) error {
	if err := safepath.CheckElement(uid); err != nil {
		return permanentError{fmt.Errorf("a pod with this UID can have no folder: %w", err)}
	}
	return nil
}

// MakePod makes the folders of a pod and opens the topmost one.
func MakePod(pods *safepath.Root, uid string, pod *v1.Pod) (Folder, error) {
	err := checkUID(uid)
	for _, below := range []string{volumesFolder, pluginsFolder, logsFolder} {
		if err == nil {
			err = pods.MkdirAll(filepath.Join(uid, below), FolderMode)
		}
	}
	if err != nil {
		return Folder{}, err
	}
	return OpenPod(pods, uid, pod)
}

// OpenPod opens the folder of a pod. The error wraps fs.ErrNotExist if there is none.
func OpenPod(pods *safepath.Root, uid string, pod *v1.Pod) (Folder, error) {
	if err := checkUID(uid); err != nil {
		return Folder{}, err
	}
	root, err := pods.Sub(uid)
	if err == nil {
		root.SetOwner(callOwner(uid, pod))
	}
	return Folder{Root: root, Pod: pod}, err
}

// callOwner returns the owner of calls for a pod. If pod is nil, only its UID is known.
func callOwner(uid string, pod *v1.Pod) safepath.Owner {
	if pod == nil {
		return safepath.Owner{Pod: uid}
	}
	return safepath.Owner{Namespace: pod.Namespace, Pod: uid}
}

// VolumeFolder returns the path of a volume's folder in its pod's folder.
func VolumeFolder(plugin, volume string) string {
	return filepath.Join(volumesFolder, Escaped(plugin), volume)
}

// Escaped returns a plugin's name in the form of folder names.
func Escaped(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// FoundVolume is a volume's folder on the disk.
type FoundVolume struct{ Plugin, Volume string } // Plugin is escaped

func (f FoundVolume) path() string { return filepath.Join(volumesFolder, f.Plugin, f.Volume) }

// Device returns the path of a block device in its pod's folder.
func (f FoundVolume) Device() string { return filepath.Join(devicesFolder, f.Plugin, f.Volume) }

// FoundVolumes lists the folders of volumes that a pod has, sorted.
func FoundVolumes(p Folder) ([]FoundVolume, error) { return foundIn(p, volumesFolder) }

// FoundDevices lists the raw block devices of the pod, sorted.
func FoundDevices(p Folder) ([]FoundVolume, error) { return foundIn(p, devicesFolder) }

func foundIn(p Folder, folder string) ([]FoundVolume, error) {
	kinds, err := NamesIn(p.Root, folder)
	if err != nil {
		return nil, err
	}
	var out []FoundVolume
	for _, kind := range kinds {
		volumes, err := NamesIn(p.Root, filepath.Join(folder, kind))
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			out = append(out, FoundVolume{kind, v})
		}
	}
	slices.SortFunc(out, func(a, b FoundVolume) int { return strings.Compare(a.path(), b.path()) })
	return out, nil
}

// makeFolder makes the folder of a volume that containers may write to.
func makeFolder(p Folder, folder string) error {
	if err := p.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	return p.MkdirAll(folder, 0o777)
}

// removeFolder removes the note of a volume, which marks it as complete, and then the volume and the memory on it.
func removeFolder(ctx context.Context, p Folder, notes, folder string) error {
	if isMemory(p, folder) {
		if err := p.Unmount(folder); err != nil {
			return err
		}
	}
	if err := safepath.RemoveAllOneFilesystem(ctx, p.Root, notes); err != nil {
		return err
	}
	return safepath.RemoveAllOneFilesystem(ctx, p.Root, folder)
}

// NamesIn lists a folder. A file, or a missing folder, has no names.
func NamesIn(root *safepath.Root, name string) ([]string, error) {
	names, err := root.Names(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return names, err
}

// IsAbsent reports whether err means that the object does not exist.
func IsAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IgnoreAbsent returns nil for such an error.
func IgnoreAbsent(err error) error {
	if IsAbsent(err) {
		return nil
	}
	return err
}
