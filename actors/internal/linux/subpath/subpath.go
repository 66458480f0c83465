// Package subpath makes a file or folder of a volume appear in its pod's folder, for containers that mount only a part of
// the volume (subPath). Whoever can write to the volume may swap its folders for links at any moment: what is bound is what
// a descriptor stands for that was opened below the volume, and the runtime is given the path of the bind, in which no pod
// has a say (CVE-2017-1002101, CVE-2021-25741).
//
// Nothing is remembered: what is bound is found where the kubelet has it, <pod>/volume-subpaths/<volume>/<container>/<index>,
// also by the next agent. Bindings of different places may be made side by side.
package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// Folder is where a pod's folder has the binds.
const Folder = "volume-subpaths"

// layers bounds how many mounts on one place are undone; more than one is nobody's normal doing.
const layers = 64

// Part is the part of a volume that one mount of a container asks for.
type Part struct {
	// Pod is the pod's folder on the host, and From the volume's. Both are trusted.
	Pod, From string
	// Volume, Container and Index, which counts the container's mounts, name the place.
	Volume, Container string
	Index             int
	// Path is relative to the volume, without "..". Links on the way are followed within the volume. Missing folders are made
	// with the mode of the volume's own.
	Path string
	// PassOn has mounts that the container makes come through to the volume (mountPropagation: Bidirectional).
	PassOn bool
}

// Place is the path of the bind on the host.
func (p Part) Place() string { return filepath.Join(p.Pod, p.place()) }

func (p Part) place() string {
	return filepath.Join(Folder, p.Volume, p.Container, strconv.Itoa(p.Index))
}

// Bind makes the part of the volume appear at its place, which it returns. It may be cut off at any point and done again: what
// is bound there already stays, and what else is there goes. The error tells nothing about what lies outside the volume.
func Bind(p Part) (string, error) {
	if err := errors.Join(safepath.CheckElement(p.Volume), safepath.CheckElement(p.Container)); err != nil {
		return "", err
	}
	source, err := p.open()
	if err != nil {
		return "", fmt.Errorf("subPath %q of volume %q: %w", p.Path, p.Volume, plain(err))
	}
	pod, err := safepath.OpenRoot(p.Pod)
	if err == nil {
		err = errors.Join(p.bind(pod, source), pod.Close())
	}
	if err = errors.Join(err, source.Close()); err != nil {
		return "", fmt.Errorf("subPath %q of volume %q cannot be bound: %w", p.Path, p.Volume, err)
	}
	return p.Place(), nil
}

// open opens what is asked for.
func (p Part) open() (*os.File, error) {
	volume, err := safepath.OpenRoot(p.From)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return nil, errors.New("the volume is a file")
	case errors.Is(err, unix.ENOENT):
		return nil, errors.New("the volume is not there")
	case err != nil:
		return nil, err
	}
	defer volume.Close() //nolint:errcheck // opened for reading
	info, err := volume.Lstat(".")
	if err != nil {
		return nil, err
	}
	return volume.FollowMkdir(p.Path, info.Mode())
}

func (p Part) bind(pod *safepath.Root, source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return unix.ELOOP // Follow gives none
	}
	place := p.place()
	there, err := settle(pod, place, info)
	if err != nil {
		return err
	}
	if there {
		if p.PassOn {
			return nil
		}
		return pod.Receive(place) // an agent may have died between the two
	}
	if err := target(pod, place, info.IsDir()); err != nil {
		return err
	}
	return pod.BindFrom(source.Fd(), place, p.PassOn)
}

// settle says whether the place has what is asked for (nil: nothing), and otherwise leaves nothing mounted there.
func settle(pod *safepath.Root, place string, wanted fs.FileInfo) (bool, error) {
	for range layers {
		is, err := pod.IsMountPoint(place)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !is {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if wanted != nil { // otherwise its server, which may hang, is not asked
			// A bind that cannot be read belongs to a dead file system and is detached.
			if found, err := pod.Lstat(place); err == nil && os.SameFile(found, wanted) {
				return true, nil
			}
		}
		if err := pod.Detach(place); err != nil {
			return false, err
		}
	}
	return false, unix.EBUSY
}

// target makes what is mounted on: a folder or an empty file, with the kubelet's modes.
func target(pod *safepath.Root, place string, dir bool) error {
	info, err := pod.Lstat(place)
	if err == nil && (info.IsDir() != dir || info.Mode().Type()&^fs.ModeDir != 0) {
		if err = pod.RemoveEmpty(place); err == nil {
			err = fs.ErrNotExist
		}
	}
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case dir:
		return pod.MkdirAll(place, 0o750)
	}
	if err := pod.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return err
	}
	f, err := pod.OpenBeneath(place, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// UnbindAll undoes all binds in a pod's open folder and removes their empty places. Running containers keep their view. Other
// mounts in the folders of binds, and data in a place, are kept and returned as errors.
func UnbindAll(pod *safepath.Root) error {
	levels, err := placesIn(pod)
	errs := []error{err}
	for _, place := range levels[len(levels)-1] {
		if _, err := settle(pod, place, nil); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Join(pod.Path(), place), err))
		}
	}
	for _, level := range slices.Backward(levels) {
		for _, place := range level {
			errs = append(errs, pod.RemoveEmpty(place))
		}
		if err := errors.Join(errs...); err != nil {
			return err // the folders above are not empty then
		}
	}
	return nil
}

// placesIn lists the folders of binds by level: the top folder, the folders of volumes and of containers, and the places. With
// an error it also returns the folders that it could read.
func placesIn(pod *safepath.Root) (levels [][]string, err error) {
	levels = [][]string{{Folder}}
	for depth := range 3 { // <volume>/<container>/<index>
		var next []string
		for _, folder := range levels[depth] {
			if is, err := pod.IsMountPoint(folder); err == nil && is {
				continue // mounted by others: RemoveEmpty returns the error
			}
			names, listErr := pod.Names(folder)
			if listErr != nil && !errors.Is(listErr, fs.ErrNotExist) && !errors.Is(listErr, unix.ENOTDIR) {
				err = errors.Join(err, fmt.Errorf("%s: %w", filepath.Join(pod.Path(), folder), listErr))
			}
			for _, name := range names {
				next = append(next, filepath.Join(folder, name))
			}
		}
		levels = append(levels, next)
	}
	return levels, err
}

// plain is the reason without the host's paths, which are not the pod's to know.
func plain(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return errors.New("it leads out of the volume, or through an absolute link")
	case errors.Is(err, unix.ENOENT):
		return errors.New("it does not exist")
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("something on the way is no folder")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
