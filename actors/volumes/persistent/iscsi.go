package persistent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// iscsiVolume is a logical unit of an iSCSI target: the pod's own [inline], or the volume that is bound to its claim. Its file
// system is mounted once for all pods and bound into their folders. Its folders, records and sessions are the kubelet's.
type iscsiVolume struct{ kind }

// iscsiPrefix begins the keys of operations on such volumes, before the folder in the one of iscsi.Top. No CSI driver has such a
// name.
const iscsiPrefix = "_iscsi/"

func (iscsiVolume) Name() string { return iscsi.PluginName }

func (iscsiVolume) Handles(v *v1.Volume) bool { return v.ISCSI != nil }

func (i iscsiVolume) Mount(ctx context.Context, p kinds.Folder, v *v1.Volume) (string, error) {
	if i.s == nil || v.ISCSI.SessionCHAPAuth && !objectset.OfAPIServer(p.Pod) {
		return "", kinds.Permanent("iscsi volumes, and the Secrets for them, need an API server")
	}
	path, err := i.s.mountISCSI(ctx, p, v.Name, iscsi.Inline(v.Name, v.ISCSI))
	return i.s.keepMounted(p, v.Name, path, err)
}

// MountsAt implements kinds.Mounter.
func (iscsiVolume) MountsAt(volume string) string {
	return kinds.VolumeFolder(iscsi.PluginName, volume)
}

// Unmount leaves the mount for the node and the session to the Unstager.
func (i iscsiVolume) Unmount(ctx context.Context, p kinds.Folder, volume string) error {
	defer i.s.touch(true)
	return kinds.RemoveMount(ctx, p, i.MountsAt(volume))
}

// mountISCSI binds the file system of a logical unit into the pod's folder, unless it is bound. Its place has the name of the
// PersistentVolume, as in the kubelet, and may therefore be the place of a volume of the pod's own.
func (s *Storage) mountISCSI(ctx context.Context, p kinds.Folder, volume string, src iscsi.Source) (string, error) {
	if err := errors.Join(safepath.CheckElement(src.Volume), src.Check()); err != nil {
		return "", kinds.Permanent("%w", err)
	}
	if slices.ContainsFunc(p.Pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.ISCSI != nil && v.Name == src.Volume && v.Name != volume
	}) {
		return "", kinds.Permanent("the pod has another iscsi volume with the name of PersistentVolume %s", src.Volume)
	}
	folder := kinds.VolumeFolder(iscsi.PluginName, src.Volume)
	at := filepath.Join(p.Path(), folder)
	p.SetPlugin(iscsi.PluginName, false)
	h := s.begin(p, volume, folder)
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.wants = src.UniqueName() })
	if !s.isMounted(p, volume) {
		defer s.hold(iscsiPrefix + src.Folder())()
		if err := s.bindISCSI(ctx, p, volume, folder, src); err != nil {
			return "", err
		}
	}
	if src.ReadOnly {
		if err := p.SetReadOnly(folder); err != nil {
			return "", err
		}
	} else if h.progress != done {
		if err := kinds.OwnVolume(ctx, p, folder, h.progress != begun); err != nil {
			return "", err
		}
	}
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.progress = done })
	return at, nil
}

// bindISCSI waits for the Node, mounts the file system for the node, and binds it. A controller may attach the volume, which
// changes nothing on the node, but moves the volume between nodes only after its last pod.
func (s *Storage) bindISCSI(ctx context.Context, p kinds.Folder, volume, folder string, src iscsi.Source) error {
	if node := s.node.Load(); node == nil || node.Annotations[attachDetach] == "true" {
		attaching := messages.Cause{Code: messages.CauseNotAttached, Name: src.Volume}
		w := s.onNode(p, volume, src.UniqueName(), attaching, attaching.Errorf("%s is not attached to this node yet", src),
			func() bool { return false })
		if w.Err != nil {
			return w
		}
	}
	var secret map[string][]byte
	if src.CHAP {
		namespace := src.Namespace
		if namespace == "" {
			namespace = p.Pod.Namespace
		}
		object, err := fetch(ctx, p.Pod, object{"Secret", namespace + "/" + src.Secret},
			s.Client.CoreV1().Secrets(namespace).Get, src.Secret)
		if err != nil {
			return err
		}
		secret = object.Data
	}
	global := filepath.Join(iscsi.Top(s.RootDir), src.Folder())
	err := s.alone(ctx, iscsiPrefix+src.Folder(), func(ctx context.Context) error {
		return s.mountUnit(ctx, ownerOf(p), src, secret)
	})
	if err != nil {
		return err
	}
	return bindFolder(ctx, p, folder, global, src.Volume)
}

// attachDetach is the Node's annotation with which the controller attaches volumes.
const attachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"

// mountUnit logs in and mounts the file system of a logical unit for the node. The caller holds the volume.
func (s *Storage) mountUnit(ctx context.Context, owner safepath.Owner, src iscsi.Source, secret map[string][]byte) error {
	if err := os.MkdirAll(iscsi.Top(s.RootDir), kinds.FolderMode); err != nil {
		return err
	}
	root, err := safepath.OpenRoot(iscsi.Top(s.RootDir))
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	unlock, err := s.lockPlace(ctx, iscsiPrefix+src.Target)
	if err != nil {
		return err
	}
	device, err := s.ISCSI.Login(ctx, owner, s.RootDir, root, src, secret)
	s.touch(false)
	if unlock(); err != nil {
		return err
	}
	f := fileSystem{folder: src.Folder(), volume: src.Volume, device: device, kind: src.FSType, options: src.Options,
		readOnly: src.ReadOnly, record: iscsi.RecordFile}
	if src.ReadOnly {
		f.options = append(slices.Clone(f.options), "ro")
	}
	if err := s.mountDevice(ctx, owner, root, f); err != nil || src.ReadOnly {
		return err
	}
	mounts, err := mountsAt(filepath.Join(root.Path(), src.Folder()))
	if err == nil && len(mounts) > 0 && slices.Contains(strings.Split(mounts[len(mounts)-1].Options, ","), "ro") &&
		!slices.Contains(src.Options, "ro") {
		return errors.New("the volume is mounted read-only for another pod of this node, and this pod writes: end that pod")
	}
	return err
}

// unusedISCSI lists the logical units that no pod has.
func (s *Storage) unusedISCSI() (keys []string, err error) {
	records, err := iscsi.Records(s.RootDir)
	for folder := range records {
		key := iscsiPrefix + folder
		if strings.HasPrefix(folder, iscsi.DevicesFolder+"/") || s.isHeld(key) {
			continue
		}
		used, usedErr := s.isUnitBound(folder)
		if err = errors.Join(err, usedErr); !used && usedErr == nil {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func (s *Storage) isUnitBound(folder string) (bool, error) {
	return isMountedOutside(filepath.Join(iscsi.Top(s.RootDir), folder), filepath.Join("plugins", iscsi.PluginName))
}

// removeUnit unmounts the file system of a logical unit if no pod has it, and logs out.
func (s *Storage) removeUnit(ctx context.Context, folder string) error {
	root, err := safepath.OpenRoot(iscsi.Top(s.RootDir))
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	records, err := iscsi.Records(s.RootDir)
	r, known := records[folder]
	if err != nil || !known {
		return err
	}
	is, err := s.unmountUnused(ctx, root, folder, iscsiPrefix+folder, func() (bool, error) { return s.isUnitBound(folder) })
	if err != nil || !is {
		return err
	}
	unlock, err := s.lockPlace(ctx, iscsiPrefix+r.Iqn)
	if err != nil {
		return err
	}
	defer unlock()
	defer s.touch(false)
	return s.ISCSI.Logout(ctx, safepath.Owner{Pod: filepath.Join(root.Path(), folder)}, s.RootDir, root, folder)
}

// addUnits adds the names of recorded logical units. The folder of a record does not have the portal as in the spec: the name of
// a pod's volume, or of the Node's status, is preferred.
func addUnits(names map[string]bool, units map[string]iscsi.Record, node *v1.Node) {
	for _, r := range units {
		name := r.UniqueName()
		if short := strings.Replace(name, ":3260:", ":", 1); names[short] || inUseOn(node, short) {
			name = short
		}
		names[name] = true
	}
}
