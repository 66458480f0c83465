package kinds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/messages"
)

// HostPath is a file or folder of the host. Nothing is mounted or removed for it. Its path is returned after the check that its
// type requests. Links in the path are followed, as everywhere on a host.
type HostPath struct{ BareKind }

// Name implements Plugin.
func (HostPath) Name() string { return "kubernetes.io/host-path" }

// Handles implements Plugin.
func (HostPath) Handles(v *v1.Volume) bool { return v.HostPath != nil }

// hostPathTypes has the required kind of file by type, and the function that creates a missing one.
var hostPathTypes = map[v1.HostPathType]struct {
	must fs.FileMode // the type bits
	make func(path string) error
}{
	v1.HostPathDirectory:         {fs.ModeDir, nil},
	v1.HostPathDirectoryOrCreate: {fs.ModeDir, makeHostDirectory},
	v1.HostPathFile:              {0, nil},
	v1.HostPathFileOrCreate:      {0, makeHostFile},
	v1.HostPathSocket:            {fs.ModeSocket, nil},
	v1.HostPathCharDev:           {fs.ModeDevice | fs.ModeCharDevice, nil},
	v1.HostPathBlockDev:          {fs.ModeDevice, nil},
}

// Mount implements Plugin.
func (HostPath) Mount(ctx context.Context, p Folder, v *v1.Volume) (string, error) {
	path := v.HostPath.Path
	if !filepath.IsAbs(path) {
		return "", Permanent("hostPath.path %q is not absolute", path)
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", Permanent("hostPath.path %q contains \"..\"", path)
	}
	if v.HostPath.Type == nil || *v.HostPath.Type == v1.HostPathUnset {
		return path, nil
	}
	kind, ok := hostPathTypes[*v.HostPath.Type]
	if !ok {
		return "", Permanent("hostPath.type %q is not known", *v.HostPath.Type)
	}
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	owner, key := callOwner(string(p.Pod.UID), p.Pod), "hostPath "+path+" "+string(*v.HostPath.Type)
	info, err := safepath.Bounded(ctx, owner, path, key, func() (fs.FileInfo, error) {
		info, err := os.Stat(path)
		if IsAbsent(err) && kind.make != nil {
			if err := kind.make(path); err != nil {
				return nil, errors.New("nothing is there and it cannot be made: " + err.Error())
			}
			info, err = os.Stat(path)
		}
		return info, err
	})
	switch {
	case IsAbsent(err):
		return "", wrongHostPath(v.HostPath, "nothing is there")
	case err != nil:
		return "", wrongHostPath(v.HostPath, err.Error())
	case info.Mode().Type() != kind.must:
		return "", wrongHostPath(v.HostPath, "it is "+typeWords[info.Mode().Type()])
	}
	return path, nil
}

func wrongHostPath(source *v1.HostPathVolumeSource, why string) error {
	return messages.Cause{Code: messages.CauseHostPath, Name: source.Path}.Errorf(
		"hostPath %s is not what its type %s asks for: %s", source.Path, *source.Type, why)
}

// Checks reports whether a volume is a hostPath that is checked before it is used. It may be on any file system, and the check
// may hang.
func (HostPath) Checks(v *v1.Volume) bool {
	return v.HostPath != nil && v.HostPath.Type != nil && *v.HostPath.Type != v1.HostPathUnset
}

// Mounted is always true: a running pod keeps its file of the host, even if the path changes.
func (HostPath) Mounted(Folder, *v1.Volume) bool { return true }

// makeHostDirectory creates the missing part of the path, 0755. Links in the existing part are followed. The new part is
// created without following a link that appears meanwhile.
func makeHostDirectory(path string) error {
	there, missing := filepath.Clean(path), ""
	for {
		missing = filepath.Join(filepath.Base(there), missing)
		there = filepath.Dir(there)
		root, err := safepath.OpenRoot(there)
		if IsAbsent(err) && there != "/" {
			continue
		}
		if err != nil {
			return err
		}
		return errors.Join(root.MkdirAll(missing, 0o755), root.Close())
	}
}

// makeHostFile makes an empty file, 0644, in a folder that must be there.
func makeHostFile(path string) error {
	root, err := safepath.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := root.OpenBeneath(filepath.Base(path), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another process made it; its type is checked next
	} else if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Close())
	}
	return errors.Join(err, root.Close())
}

// typeWords are the words for kinds of files.
var typeWords = map[fs.FileMode]string{
	0: "a file", fs.ModeDir: "a directory", fs.ModeSocket: "a socket", fs.ModeNamedPipe: "a named pipe",
	fs.ModeDevice | fs.ModeCharDevice: "a character device", fs.ModeDevice: "a block device",
}
