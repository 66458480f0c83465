package kinds

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/translate"
)

// emptyDir is a folder on the disk, in memory or in huge pages that lives as long as its pod.
type emptyDir struct{}

const emptyDirName = "kubernetes.io/empty-dir"

// readyFile, in the volume's folder below plugins/, marks the volume as complete. The kubelet has the same file. From then on
// the mode of the volume belongs to its containers, and is not set again after a restart. The content of the file is the
// agent's own: onDiskNote for a volume on the disk.
const (
	readyFile  = "ready"
	onDiskNote = "disk"
)

func (emptyDir) Name() string { return emptyDirName }

func (emptyDir) Handles(v *v1.Volume) bool { return v.EmptyDir != nil }

func emptyDirNotes(volume string) string {
	return filepath.Join(pluginsFolder, Escaped(emptyDirName), volume)
}

// Mount makes the folder, and mounts the requested medium on it. It sets the owner and the mode once, before any container
// runs. From then on they belong to the containers.
func (e emptyDir) Mount(_ context.Context, p Folder, v *v1.Volume) (string, error) {
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", permanentError{err}
	}
	folder := VolumeFolder(emptyDirName, v.Name)
	path := filepath.Join(p.Path(), folder)
	if e.Mounted(p, v) {
		return path, nil
	}
	medium, err := mediumOf(p, v.EmptyDir)
	if err != nil {
		return "", err
	}
	mounted, err := ownMount(p, folder, medium.kind != "")
	if err != nil {
		return "", err
	}
	if err := makeFolder(p, folder); err != nil {
		return "", err
	}
	if !mounted {
		if err := medium.mount(p, folder); err != nil {
			return "", err
		}
	}
	if err := ownFolder(p, folder, medium.mode, groupFolder); err != nil { // a crash may have left the folder without its mode
		return "", err
	}
	stays := p.Node.StaticStay && translate.IsStatic(p.Pod)
	if size := v.EmptyDir.SizeLimit; stays && medium.kind == "" && size != nil && !size.IsZero() {
		p.Node.Log.Warn("the size of an emptyDir on the disk is not bounded: "+
			"without --evict-static-pods no static pod is evicted",
			"pod", p.Pod.UID, "volume", v.Name, "sizeLimit", size.String())
	}
	return path, setReady(p, emptyDirNotes(v.Name), cmp.Or(medium.kind, onDiskNote))
}

func (emptyDir) Mounted(p Folder, v *v1.Volume) bool {
	if _, err := p.Lstat(filepath.Join(emptyDirNotes(v.Name), readyFile)); err != nil {
		return false
	}
	folder := VolumeFolder(emptyDirName, v.Name)
	if v.EmptyDir.Medium != v1.StorageMediumDefault { // the note outlives a reboot, and the mount does not
		return isMemory(p, folder)
	}
	info, err := p.Lstat(folder)
	return err == nil && info.IsDir()
}

// InMemory also returns true for a volume made by a kubelet or an earlier agent: they did not record the medium.
func (emptyDir) InMemory(p Folder, volume string) bool {
	f, err := p.OpenBeneath(filepath.Join(emptyDirNotes(volume), readyFile), unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	note, err := io.ReadAll(io.LimitReader(f, int64(len(onDiskNote))+1))
	return errors.Join(err, f.Close()) != nil || string(note) != onDiskNote
}

func (emptyDir) Unmount(ctx context.Context, p Folder, volume string) error {
	return removeFolder(ctx, p, emptyDirNotes(volume), VolumeFolder(emptyDirName, volume))
}

func setReady(p Folder, notes, note string) error {
	if err := p.MkdirAll(notes, FolderMode); err != nil {
		return err
	}
	f, err := p.OpenBeneath(filepath.Join(notes, readyFile), unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(note)
	return errors.Join(err, f.Close())
}
