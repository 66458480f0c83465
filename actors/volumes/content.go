package volumes

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/safepath"
)

// file is one file of a volume's content.
type file struct {
	data []byte
	mode int32
}

// source is where the content of a volume comes from.
type source interface {
	handles(v *v1.Volume) bool
	// files are the content by path in the volume. An error that trying again cannot help is a permanentError.
	files(p podFolder, v *v1.Volume) (map[string]file, error)
}

// content is the kinds of volumes whose files the agent writes. They are written whole, appear at once (write.go), and are
// written again when what they say has changed. Containers only read them.
type content struct {
	kind   string
	memory bool // it lies in a tmpfs, so that it never reaches the disk
	source source
}

func (c content) name() string { return c.kind }

func (c content) handles(v *v1.Volume) bool { return c.source.handles(v) }

func (c content) folder(volume string) string {
	return filepath.Join(volumesFolder, escaped(c.kind), volume)
}

func (c content) mount(_ context.Context, p podFolder, v *v1.Volume) (string, error) {
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", permanentError{err}
	}
	files, err := c.source.files(p, v) // first what may be missing: nothing is mounted for a pod that waits
	if err != nil {
		return "", err
	}
	folder := c.folder(v.Name)
	if err := p.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	if err := p.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	if c.memory {
		if err := memory(p, nil).mount(p, folder); err != nil {
			return "", err
		}
	}
	if err := ownFolder(p, folder, 0o777); err != nil {
		return "", err
	}
	if err := writeFiles(p, folder, files); err != nil {
		return "", err
	}
	return filepath.Join(p.Path(), folder), nil
}

func (c content) mounted(p podFolder, v *v1.Volume) bool {
	folder := c.folder(v.Name)
	if c.memory && !isMemory(p, folder) {
		return false
	}
	_, err := p.Lstat(filepath.Join(folder, dataLink))
	return err == nil
}

func (c content) unmount(ctx context.Context, p podFolder, volume string) error {
	folder := c.folder(volume)
	if isMemory(p, folder) {
		if err := p.Unmount(folder); err != nil {
			return err
		}
	}
	// A kubelet notes the folder below as an emptyDir of its own.
	notes := filepath.Join(pluginsFolder, escaped(emptyDirName), "wrapped_"+volume)
	if err := safepath.RemoveAllOneFilesystem(ctx, p.Root, notes); err != nil {
		return err
	}
	return safepath.RemoveAllOneFilesystem(ctx, p.Root, folder)
}
