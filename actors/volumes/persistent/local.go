package persistent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// local is a PersistentVolume that is a folder of this node, or a block device with a file system (filesystem.go). It is bound
// into the pod's folder. A pod has it by a claim.
type local struct{ kind }

const localName = "kubernetes.io/local-volume"

func (local) Name() string { return localName }

func (local) Handles(*v1.Volume) bool { return false }

func (local) Mount(context.Context, kinds.Folder, *v1.Volume) (string, error) {
	return "", kinds.Permanent("a local volume needs a claim")
}

// bindLocal binds the folder, or the file system on the device, unless it is bound. Its path is trusted: the administrator
// wrote it into the PersistentVolume.
func (s *Storage) bindLocal(
	ctx context.Context, p kinds.Folder, volume string, pv *v1.PersistentVolume, readOnly bool,
) (string, error) {
	folder := kinds.VolumeFolder(localName, pv.Name)
	at := filepath.Join(p.Path(), folder)
	path, err := localPath(pv)
	if err != nil {
		return "", err
	}
	p.SetPlugin(localName, false)
	h := s.begin(p, volume, folder)
	if !s.isMounted(p, volume) {
		defer s.hold(pv.Name)()
		if path, err = s.sourceOf(ctx, p, pv, path, readOnly); err != nil {
			return "", fmt.Errorf("local.path of PersistentVolume %s: %w", pv.Name, err)
		}
		if err := warnOfGroup(ctx, p, folder, path, pv); err != nil {
			return "", err
		}
		if err := bindFolder(ctx, p, folder, path, pv.Name); err != nil {
			return "", err
		}
	}
	if !readOnly && h.progress != done { // containers mount it so
		if err := kinds.OwnVolume(ctx, p, folder, h.progress != begun); err != nil {
			return "", err
		}
	}
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.progress = done })
	return at, nil
}

// sourceOf returns the folder to bind: the path of the volume, or the file system that is mounted from the device there.
func (s *Storage) sourceOf(
	ctx context.Context, p kinds.Folder, pv *v1.PersistentVolume, path string, readOnly bool,
) (string, error) {
	st, err := statFile(ctx, p, path)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return path, err
	}
	return s.mountFileSystem(ctx, ownerOf(p), pv, readOnly)
}

// localPath returns the path of a local volume. It was written by the administrator, as the kubelet requires it.
func localPath(pv *v1.PersistentVolume) (string, error) {
	path := pv.Spec.Local.Path
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
		return "", kinds.Permanent("local.path %q of PersistentVolume %s is not absolute, or contains \"..\"", path, pv.Name)
	}
	return path, nil
}

// bindFolder binds the node's folder of a PersistentVolume into the pod's.
func bindFolder(ctx context.Context, p kinds.Folder, folder, path, pv string) error {
	if err := p.MkdirAll(folder, kinds.FolderMode); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	err := p.Bounded(ctx, path, "binding "+path+" for pod "+string(p.Pod.UID), func(pod *safepath.Root) error {
		source, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer source.Close() //nolint:errcheck // read only
		if err := ctx.Err(); err != nil {
			return err // the pod may be gone by now
		}
		if err = pod.BindFrom(source.Fd(), folder, true); err == nil && ctx.Err() != nil { // it may be gone since
			err = errors.Join(ctx.Err(), pod.Detach(folder))
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return kinds.Permanent("local.path %s of PersistentVolume %s is no folder, and its volumeMode is not Block", path, pv)
	case err != nil:
		return fmt.Errorf("local.path of PersistentVolume %s: %w", pv, err)
	}
	return nil
}

// warnOfGroup records the kubelet's Event if other pods have the volume and its folder belongs to another fsGroup.
func warnOfGroup(ctx context.Context, p kinds.Folder, folder, path string, pv *v1.PersistentVolume) error {
	group := kinds.FSGroupOf(p.Pod)
	if group == nil {
		return nil
	}
	shared, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		is := strings.HasSuffix(m.Mountpoint, "/"+folder) // no path of this pod: nothing is mounted there
		return !is, is
	})
	if err != nil || len(shared) == 0 {
		return err
	}
	st, err := statFile(ctx, p, path)
	if err == nil && int64(st.Gid) != *group {
		p.Record(messages.PodEvent(p.Pod, "", v1.EventTypeWarning, messages.EventAlreadyMounted, fmt.Sprintf(
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
			*group, pv.Name, st.Gid), time.Now()))
	}
	return nil
}

// statFile returns the attributes of a file of the node, which may be on a server that hangs.
func statFile(ctx context.Context, p kinds.Folder, path string) (unix.Stat_t, error) {
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	st, err := safepath.Bounded(ctx, ownerOf(p), path, "stat "+path, func() (st unix.Stat_t, err error) {
		err = unix.Stat(path, &st)
		return st, err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return st, err
}

func ownerOf(p kinds.Folder) safepath.Owner {
	return safepath.Owner{Namespace: p.Pod.Namespace, Pod: string(p.Pod.UID)}
}

// MountsAt implements kinds.Mounter.
func (local) MountsAt(volume string) string { return kinds.VolumeFolder(localName, volume) }

func (l local) Unmount(ctx context.Context, p kinds.Folder, volume string) error {
	defer l.s.touch(true) // the file system of a device may have no pod any more
	return kinds.RemoveMount(ctx, p, kinds.VolumeFolder(localName, volume))
}
