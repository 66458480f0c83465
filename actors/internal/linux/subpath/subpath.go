// Package subpath binds a file or folder of a volume into its pod's folder, for containers that mount only a part of the volume
// (subPath). A container that can write to the volume may replace its folders by links at any moment. The source of a bind is
// therefore a descriptor that was opened beneath the volume. The runtime gets the path of the bind, which no pod can change
// (CVE-2017-1002101, CVE-2021-25741).
//
// The package keeps no state. Binds are found at the kubelet's paths, <pod>/volume-subpaths/<volume>/<container>/<index>, also
// after a restart of the agent. Different places may be bound concurrently.
package subpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// Folder is the name of the folder of binds in a pod's folder.
const Folder = "volume-subpaths"

// layers limits the number of stacked mounts that are undone on one place. Normally there is one.
const layers = 64

// Part is the part of a volume that one mount of a container requests.
type Part struct {
	// Pod is the pod's folder on the host, and From the volume's. Both are trusted.
	Pod, From string
	// Volume, Container and Index, the position among the container's mounts, name the place.
	Volume, Container string
	Index             int
	// Path is relative to the volume, without "..". Links in it are followed within the volume. Missing folders are created
	// with the mode of the volume's root.
	Path string
	// PassOn propagates mounts of the container to the volume (mountPropagation: Bidirectional).
	PassOn bool
}

// Place returns the path of the bind on the host.
func (p Part) Place() string { return filepath.Join(p.Pod, p.place()) }

func (p Part) place() string {
	return filepath.Join(Folder, p.Volume, p.Container, strconv.Itoa(p.Index))
}

// errLate is the error of a bind that its caller no longer waits for.
var errLate = errors.New("the wait for it is over")

// Bind binds the part of the volume at its place, and returns the place. It may be interrupted at any point and repeated: an
// existing bind of the part is kept, and other mounts on the place are removed. If ctx has ended, e.g. because the file server
// was hung, the call leaves no new bind, since its pod may have ended. The error reveals nothing about files outside the
// volume.
func Bind(ctx context.Context, p Part) (string, error) {
	if err := errors.Join(safepath.CheckElement(p.Volume), safepath.CheckElement(p.Container)); err != nil {
		return "", err
	}
	source, err := p.open()
	if err != nil {
		return "", fmt.Errorf("subPath %q of volume %q: %w", p.Path, p.Volume, plain(err))
	}
	pod, err := safepath.OpenRoot(p.Pod)
	if err == nil {
		err = errors.Join(p.bind(ctx, pod, source), pod.Close())
	}
	if err = errors.Join(err, source.Close()); err != nil {
		return "", fmt.Errorf("subPath %q of volume %q cannot be bound: %w", p.Path, p.Volume, err)
	}
	return p.Place(), nil
}

// open opens the part, and creates its missing folders.
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

func (p Part) bind(ctx context.Context, pod *safepath.Root, source *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		return unix.ELOOP // Follow never returns a link
	}
	if ctx.Err() != nil {
		return errLate
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
		return pod.Receive(place) // an earlier agent may have ended before this step
	}
	if err := target(pod, place, info.IsDir()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errLate
	}
	err = pod.BindFrom(source.Fd(), place, p.PassOn)
	if ctx.Err() != nil { // the binds of the pod may have been undone before this one was made
		_, undoErr := settle(pod, place, nil)
		return errors.Join(err, errLate, undoErr)
	}
	return err
}

// settle reports whether the requested file is bound at the place. Otherwise, or if requested is nil, it undoes all mounts
// there.
func settle(pod *safepath.Root, place string, requested fs.FileInfo) (bool, error) {
	for range layers {
		is, err := pod.IsMountPoint(place)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !is {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if requested != nil { // without a request no server is called, since it may hang
			// A bind that cannot be read belongs to a dead file system and is detached.
			if found, err := pod.Lstat(place); err == nil && os.SameFile(found, requested) {
				return true, nil
			}
		}
		if err := pod.Detach(place); err != nil {
			return false, err
		}
	}
	return false, unix.EBUSY
}

// target creates the mount point, a folder or an empty file, with the kubelet's modes.
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
// mounts in the folders of binds, and data in a place, are kept and returned as errors. Binds of hung servers are undone
// concurrently, so that their number does not multiply the wait.
func UnbindAll(pod *safepath.Root) error {
	levels, err := placesIn(pod)
	places := levels[len(levels)-1]
	errs := append(make([]error, len(places)), err)
	var undoing sync.WaitGroup
	for i, place := range places {
		undoing.Go(func() {
			errs[i] = guard.Call(slog.Default(), "undo a bind", func() error {
				if _, err := settle(pod, place, nil); err != nil {
					return fmt.Errorf("%s: %w", filepath.Join(pod.Path(), place), err)
				}
				return nil
			})
		})
	}
	undoing.Wait()
	for _, level := range slices.Backward(levels) {
		for _, place := range level {
			errs = append(errs, pod.RemoveEmpty(place))
		}
		if err := errors.Join(errs...); err != nil {
			return err // the parent folders are not empty
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
				continue // a mount of others: RemoveEmpty returns the error
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

// plain returns the reason without the host's paths, which pods must not see.
func plain(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return errors.New("it leads out of the volume, or through an absolute link")
	case errors.Is(err, unix.ENOENT):
		return errors.New("it does not exist")
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("a part of the path is no folder")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
