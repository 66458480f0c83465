package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// The folders are the kubelet's, so that either agent finds what the other made:
//
//	<root-dir>/pods/<uid>/volumes/<plugin>/<volume>
//	<root-dir>/pods/<uid>/plugins/<plugin>/<volume>   what a plugin notes about a volume
//	<root-dir>/pods/<uid>/volume-subpaths/...         parts of volumes (subPath): bound by the container actors, undone here
//	<root-dir>/pods/<uid>/containers/<container>      the container actors'
//	<root-dir>/pods/<uid>/etc-hosts                   the container actors'
const (
	podsFolder    = "pods"
	volumesFolder = "volumes"
	pluginsFolder = "plugins"
)

// folderMode is the mode of a pod's folders: containers reach their volumes by mounts, and nobody else has any business
// there.
const folderMode fs.FileMode = 0o750

// podFolder is the folder of one pod, open. What is done in it is done beneath its descriptor.
type podFolder struct {
	*safepath.Root
	pod  *v1.Pod // nil when only the folder is known
	node Facts
	out  *volumeOutcome // of the volume that is being mounted; nil elsewhere
}

// openPods opens the folder of all pods, and makes it when it is not there. The path of the root directory is the
// operator's and trusted.
func openPods(rootDir string) (*safepath.Root, error) {
	if err := os.MkdirAll(rootDir, folderMode); err != nil {
		return nil, err
	}
	root, err := safepath.OpenRoot(rootDir)
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(podsFolder, folderMode); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	pods, err := root.Sub(podsFolder)
	return pods, errors.Join(err, root.Close())
}

// checkUID refuses a UID that is no name for a folder: it comes from whoever wrote the manifest.
func checkUID(uid string) error {
	if err := safepath.CheckElement(uid); err != nil {
		return permanentError{fmt.Errorf("a pod with this UID can have no folder: %w", err)}
	}
	return nil
}

// makePod makes the folders of a pod and opens the topmost.
func makePod(pods *safepath.Root, uid string, pod *v1.Pod) (podFolder, error) {
	err := checkUID(uid)
	for _, below := range []string{volumesFolder, pluginsFolder, "containers"} {
		if err == nil {
			err = pods.MkdirAll(filepath.Join(uid, below), folderMode)
		}
	}
	if err != nil {
		return podFolder{}, err
	}
	return openPod(pods, uid, pod)
}

// openPod opens the folder of a pod; the error wraps fs.ErrNotExist when there is none.
func openPod(pods *safepath.Root, uid string, pod *v1.Pod) (podFolder, error) {
	if err := checkUID(uid); err != nil {
		return podFolder{}, err
	}
	root, err := pods.Sub(uid)
	return podFolder{Root: root, pod: pod}, err
}

// volumeFolder is a volume's folder in its pod's.
func volumeFolder(plugin, volume string) string {
	return filepath.Join(volumesFolder, escaped(plugin), volume)
}

// escaped is a plugin's name as it is in folder names.
func escaped(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// foundVolume is a volume's folder on the disk.
type foundVolume struct{ plugin, volume string } // plugin is escaped

func (f foundVolume) path() string { return filepath.Join(volumesFolder, f.plugin, f.volume) }

// foundVolumes lists the folders of volumes that a pod has, sorted.
func foundVolumes(p podFolder) ([]foundVolume, error) {
	kinds, err := namesIn(p.Root, volumesFolder)
	if err != nil {
		return nil, err
	}
	var out []foundVolume
	for _, kind := range kinds {
		volumes, err := namesIn(p.Root, filepath.Join(volumesFolder, kind))
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			out = append(out, foundVolume{kind, v})
		}
	}
	slices.SortFunc(out, func(a, b foundVolume) int { return strings.Compare(a.path(), b.path()) })
	return out, nil
}

// makeFolder makes the folder of a volume that containers may write to.
func makeFolder(p podFolder, folder string) error {
	if err := p.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	return p.MkdirAll(folder, 0o777)
}

// removeFolder removes what is noted of a volume, which says that it is whole, and then the volume and the memory on it.
func removeFolder(ctx context.Context, p podFolder, notes, folder string) error {
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

// namesIn lists a folder; what is none, or not there, has nothing in it.
func namesIn(root *safepath.Root, name string) ([]string, error) {
	names, err := root.Names(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return names, err
}

// isAbsent says that there is nothing, as opposed to something that cannot be had.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}
