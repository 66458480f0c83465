package kinds

import (
	"context"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// content is the kinds of volumes whose files the agent writes. The files are written completely and appear at once (write.go).
// They are written again when their content changes. Containers only read them.
type content struct {
	kind   string
	memory bool // in a tmpfs, so that the files never reach the disk
}

func (c content) Name() string { return c.kind }

func (c content) Handles(v *v1.Volume) bool {
	kind, _, _ := contentOf(v)
	return kind == c.kind
}

func (c content) Mount(ctx context.Context, p Folder, v *v1.Volume) (string, error) {
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", permanentError{err}
	}
	_, sources, _ := contentOf(v)
	if err := checkPaths(pathsOf(sources)); err != nil {
		return "", permanentError{err}
	}
	folder := VolumeFolder(c.kind, v.Name)
	mounted, err := ownMount(p, folder, c.memory)
	if err != nil {
		return "", err
	}
	there := mounted == c.memory && isWritten(p, folder)
	files, err := c.files(ctx, p, v, there) // before any mount: the pod may have to wait for objects
	switch {
	case err != nil && there && p.mayPass(v, err):
		// The volume was written before, perhaps by an earlier agent. It stays as it is until the API server can be reached.
		return filepath.Join(p.Path(), folder), nil
	case err != nil:
		return "", err
	}
	if err := checkPaths(slices.Sorted(maps.Keys(files))); err != nil { // not permanent: the keys of objects may change
		return "", err
	}
	if err := makeFolder(p, folder); err != nil {
		return "", err
	}
	mode := fs.FileMode(0o777)
	if c.memory {
		if err := makeRoom(p, folder, files, mounted); err != nil {
			return "", err
		}
		mode |= fs.ModeSticky // the kernel's mode of a tmpfs, which the kubelet keeps
	}
	if err := ownFolder(p, folder, mode, groupFolder); err != nil {
		return "", err
	}
	if err := writeFiles(p, folder, files); err != nil {
		return "", err
	}
	return filepath.Join(p.Path(), folder), nil
}

// unreadTimeout is how long the first mount of a volume waits for objects that have not been read yet.
const unreadTimeout = time.Second

// files returns the content. It waits for requested objects that have not been read yet, unless the volume has been written.
func (c content) files(ctx context.Context, p Folder, v *v1.Volume, there bool) (files map[string]file, err error) {
	timeout := unreadTimeout
	if there {
		timeout = 0
	}
	err = p.Node.Objects.Settle(ctx, timeout, func() error {
		files, err = filesOf(ctx, p, v, there)
		return err
	})
	return files, err
}

func (c content) Mounted(p Folder, v *v1.Volume) bool {
	folder := VolumeFolder(c.kind, v.Name)
	mounted, err := ownMount(p, folder, c.memory)
	return err == nil && mounted == c.memory && isWritten(p, folder)
}

// isWritten reports whether a volume was written completely.
func isWritten(p Folder, folder string) bool {
	_, err := p.Lstat(filepath.Join(folder, dataLink))
	return err == nil
}

func (c content) InMemory(Folder, string) bool { return c.memory }

func (c content) Unmount(ctx context.Context, p Folder, volume string) error {
	// A kubelet has notes of this folder as an emptyDir.
	return removeFolder(ctx, p, emptyDirNotes("wrapped_"+volume), VolumeFolder(c.kind, volume))
}
