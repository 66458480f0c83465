package kinds

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
)

// nfsVolume is a folder of an NFS server. It is not given to the pod's fsGroup, like in the kubelet: its owners are the server's.
// Nothing is ever removed in it: it is unmounted, and its place removed if that is empty.
type nfsVolume struct{}

// Name implements Plugin.
func (nfsVolume) Name() string { return nfs.PluginName }

// Handles implements Plugin.
func (nfsVolume) Handles(v *v1.Volume) bool { return v.NFS != nil }

// Mount implements Plugin.
func (nfsVolume) Mount(ctx context.Context, p Folder, v *v1.Volume) (string, error) {
	return MountNFS(ctx, p, v.Name, nfs.Inline(v.NFS))
}

// Mounted implements Plugin. It asks no server.
func (s nfsVolume) Mounted(p Folder, v *v1.Volume) bool {
	is, err := p.IsMountPoint(s.MountsAt(v.Name))
	return err == nil && is
}

// InMemory implements Plugin.
func (nfsVolume) InMemory(Folder, string) bool { return false }

// MountsAt implements Mounter.
func (nfsVolume) MountsAt(volume string) string { return NFSFolder(volume) }

// NFSFolder returns the place of a volume in the pod's folder, by the name in the pod's spec or of the PersistentVolume.
func NFSFolder(name string) string { return VolumeFolder(nfs.PluginName, name) }

// MountNFS mounts a source on the place of a volume, unless it is mounted, and returns the path. It asks no server about a
// mount that is there, such as one of an earlier process or of a kubelet.
func MountNFS(ctx context.Context, p Folder, name string, s nfs.Source) (string, error) {
	if err := errors.Join(safepath.CheckElement(name), s.Check()); err != nil {
		return "", Permanent("%w", err)
	}
	if p.Node.NFS == nil {
		return "", Permanent("volumes of the kind %q are not supported", "nfs")
	}
	folder := NFSFolder(name)
	on, err := mountOn(p, folder)
	if err != nil {
		return "", err
	}
	if on == nil {
		if err := p.MkdirAll(folder, FolderMode); err != nil {
			return "", err
		}
		mountErr := p.Node.NFS.Mount(ctx, string(p.Pod.UID), s, filepath.Join(p.Path(), folder))
		if on, err = mountOn(p, folder); err == nil && on == nil {
			err = errors.New("mount.nfs reports success, and nothing is mounted")
		}
		switch {
		case mountErr != nil && (err != nil || ctx.Err() != nil):
			return "", mountErr
		case err != nil:
			return "", err
		case mountErr != nil: // e.g. only the record for umount(8) could not be written
			p.Node.Log.Warn("mount.nfs failed, but the volume is mounted", "pod", p.Pod.UID, "volume", name, "error", mountErr)
		}
	}
	return filepath.Join(p.Path(), folder), p.Node.NFS.Recognise(p.Node.Log, s, on)
}

// mountOn returns the topmost mount on a folder; nil: none.
func mountOn(p Folder, folder string) (on *mountinfo.Info, err error) {
	is, err := p.IsMountPoint(folder)
	if err != nil || !is {
		return nil, IgnoreAbsent(err)
	}
	mounts, err := MountsIn(p)
	for _, m := range mounts {
		if m.Mountpoint == filepath.Join(p.Path(), folder) {
			on = m
		}
	}
	if err == nil && on == nil {
		err = fmt.Errorf("the mount on %s is being undone", filepath.Join(p.Path(), folder))
	}
	return on, err
}

// Unmount undoes all mounts on the volume's place, and removes the place. A mount in use is detached if its server does not
// answer. If the server hangs while the kernel writes back the last data, the mount is gone, and the kernel keeps the data until
// the server answers: the pod's end goes on after unmountTimeout.
func (s nfsVolume) Unmount(ctx context.Context, p Folder, volume string) error {
	folder := s.MountsAt(volume)
	for {
		is, err := p.IsMountPoint(folder)
		if err == nil && !is {
			return p.RemoveEmpty(folder)
		}
		if err != nil {
			return IgnoreAbsent(err)
		}
		if err = unmountNFS(ctx, p, folder); err == nil {
			continue
		}
		if still, lookErr := p.IsMountPoint(folder); still || lookErr != nil {
			return errors.Join(err, IgnoreAbsent(lookErr))
		}
		p.Node.Log.Warn("an nfs volume was unmounted, but its last data is not written yet; the kernel does so when the server "+
			"answers", "pod", filepath.Base(p.Path()), "volume", volume, "error", err)
	}
}

func unmountNFS(ctx context.Context, p Folder, folder string) error {
	short, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	err := p.UnmountApart(short, folder, false)
	if errors.Is(err, unix.EINVAL) { // another process has undone it
		return nil
	}
	if errors.Is(err, unix.EBUSY) && isSilent(p.AskServer(short, folder)) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), safepath.ServerTimeout)
		defer cancel()
		return p.UnmountApart(own, folder, true)
	}
	return err
}

// isSilent reports whether a server is gone or does not answer in time.
func isSilent(err error) bool {
	return safepath.IsDead(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT)
}

// isSubmount reports whether the kernel made a mount inside an NFS volume, because the server exports a file system there. It
// goes with the volume's mount.
func isSubmount(p Plugin, m *mountinfo.Info) bool {
	return p.Name() == nfs.PluginName && nfs.IsType(m.FSType)
}
