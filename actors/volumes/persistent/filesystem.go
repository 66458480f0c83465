package persistent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// fileSystems begins the keys of operations on the file systems of local volumes, before the name of the PersistentVolume. No CSI
// driver has such a name.
const fileSystems = "_local-mounts/"

// fileSystemsFolder is the folder with the file systems of local volumes that are block devices: one for each PersistentVolume,
// mounted for all its pods. It is the kubelet's.
func (s *Storage) fileSystemsFolder() string {
	return filepath.Join(s.RootDir, "plugins", localName, "mounts")
}

// hold keeps the file system of a local volume mounted while a pod binds it. The caller calls release after that.
func (s *Storage) hold(pv string) (release func()) {
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.binding[pv] += n; s.binding[pv] == 0 {
			delete(s.binding, pv)
		}
	}
	add(1)
	return func() { add(-1) }
}

func (s *Storage) isHeld(pv string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.binding[pv] > 0
}

// mountFileSystem mounts the file system on the block device of a local volume, unless it is mounted, and returns its folder. A
// device without a file system is formatted, as in the kubelet. For a pod that only reads, it is neither formatted nor checked.
// Checks and repairs of a large file system go on when ctx ends. The caller holds the volume.
func (s *Storage) mountFileSystem(
	ctx context.Context, owner safepath.Owner, pv *v1.PersistentVolume, readOnly bool,
) (string, error) {
	at := filepath.Join(s.fileSystemsFolder(), pv.Name)
	err := s.alone(ctx, fileSystems+pv.Name, func(ctx context.Context) error {
		if err := os.MkdirAll(s.fileSystemsFolder(), kinds.FolderMode); err != nil {
			return err
		}
		root, err := safepath.OpenRoot(s.fileSystemsFolder())
		if err != nil {
			return err
		}
		defer root.Close() //nolint:errcheck // nothing is written through it
		return s.mountDevice(ctx, owner, root, fileSystem{folder: pv.Name, volume: pv.Name, device: pv.Spec.Local.Path,
			kind: ptr.Deref(pv.Spec.Local.FSType, ""), options: pv.Spec.MountOptions, readOnly: readOnly})
	})
	return at, err
}

// fileSystem is a file system to mount from a device.
type fileSystem struct {
	folder  string // the place, below a root
	volume  string // its name for messages
	device  string // its path
	kind    string // empty: ext4
	options []string
	// readOnly is set for a pod that only reads: the device is neither formatted nor checked.
	readOnly bool
	record   string // the name of a file in the folder that is no data; empty: none
}

// diskKinds are the kinds of file systems that are on a device. Others take no device, or run a program with it: a pod that names
// its own target must not mount proc, or run its disk as fuse.
var diskKinds = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "ntfs3", "iso9660", "udf", "squashfs",
	"erofs", "gfs2", "ocfs2"}

func (s *Storage) mountDevice(ctx context.Context, owner safepath.Owner, root *safepath.Root, f fileSystem) error {
	if f.kind != "" && !slices.Contains(diskKinds, f.kind) {
		return kinds.Permanent("the fsType %q is not supported: %s are", f.kind, strings.Join(diskKinds, ", "))
	}
	path, at := f.device, filepath.Join(root.Path(), f.folder)
	device, err := blockmap.At(path)
	if err != nil {
		return err
	}
	mounts, err := mountsAt(at)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		// The place of a logical unit is its own; it may have been mounted from another disk of the unit.
		if top := mounts[len(mounts)-1]; f.record == "" && !isOn(top, device) {
			return fmt.Errorf("another file system than that of device %s is mounted on %s: unmount it", path, at)
		}
		return nil
	}
	if err := root.MkdirAll(f.folder, kinds.FolderMode); err != nil {
		return err
	}
	names, err := root.Names(f.folder)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(names, func(name string) bool { return name != f.record }) {
		return fmt.Errorf("%s has data, and no device is mounted there: move the data away", at)
	}
	users, err := device.Users(ctx, owner)
	if err != nil {
		return err
	}
	disk := mount.NewSafeFormatAndMount(mount.NewWithoutSystemd(""), utilexec.New())
	kind, options := cmp.Or(f.kind, "ext4"), f.options
	format, err := disk.GetDiskFormat(path)
	switch {
	case err != nil:
		return fmt.Errorf("device %s: its file system cannot be read: %w", path, err)
	case format == "" && f.readOnly:
		return fmt.Errorf("device %s has no file system, and is not formatted for a pod that mounts it read-only", path)
	case format == "":
		if err := mayFormat(path, kind, users); err != nil {
			return err
		}
		s.Log.Info("formatting an empty device", "volume", f.volume, "device", path, "as", kind)
		return disk.FormatAndMount(path, at, kind, options)
	case strings.Contains(format, " "): // no file system
		return fmt.Errorf("device %s has %s: it is not formatted", path, format)
	case format != kind && !(strings.HasPrefix(format, "ext") && strings.HasPrefix(kind, "ext")):
		// The kernel decides; no program touches the device.
		if err := disk.Mount(path, at, kind, options); err != nil {
			return fmt.Errorf("device %s has %s, not %s: %w", path, format, kind, err)
		}
		return nil
	case slices.ContainsFunc(users, isChecker):
		return fmt.Errorf("device %s is in use by %s, which must end first", path, strings.Join(users, ", "))
	case len(users) > 0: // a check would damage a mounted file system; the kernel refuses a device that others claim
		return disk.Mount(path, at, kind, options)
	}
	disk.Exec = noFormat{disk.Exec}
	return disk.FormatAndMount(path, at, kind, options)
}

// noFormat runs all programs except mkfs. mount-utils runs blkid(8) once more before it mounts, and formats a device that
// cannot be read at that moment, because for blkid it is an empty one.
type noFormat struct{ utilexec.Interface }

func (e noFormat) Command(name string, args ...string) utilexec.Cmd {
	cmd := e.Interface.Command(name, args...)
	if strings.HasPrefix(name, "mkfs.") {
		return refusedFormat{cmd}
	}
	return cmd
}

type refusedFormat struct{ utilexec.Cmd }

func (refusedFormat) CombinedOutput() ([]byte, error) {
	return nil, errors.New("it has a file system that cannot be read at the moment: it is not formatted")
}

// isChecker reports whether a user of a device is a program that writes its file system, e.g. of an earlier agent.
func isChecker(user string) bool {
	return strings.HasPrefix(user, "process ") && (strings.Contains(user, "fsck") || strings.Contains(user, "mkfs") ||
		strings.Contains(user, "mke2fs"))
}

// isOn reports whether a mount is of the file system on a device. Some file systems have a number of their own (btrfs).
func isOn(m *mountinfo.Info, device blockmap.Device) bool {
	if m.Major == int(device.Major) && m.Minor == int(device.Minor) {
		return true
	}
	source, err := blockmap.At(m.Source)
	return m.Major == 0 && err == nil && source == device
}

// mayFormat returns an error if a device on which no file system was found must not be formatted, or cannot be: it is in use, it
// cannot be read, or the program is missing.
func mayFormat(path, kind string, users []string) error {
	if len(users) > 0 {
		return fmt.Errorf("device %s has no file system and is in use by %s: it is not formatted", path,
			strings.Join(users, ", "))
	}
	if err := isReadable(path); err != nil { // for blkid(8) it is an empty one
		return fmt.Errorf("device %s cannot be read, so it is not formatted: %w", path, err)
	}
	program := "mkfs." + kind
	if _, err := exec.LookPath(program); err != nil {
		packages := map[string]string{"ext2": "e2fsprogs", "ext3": "e2fsprogs", "ext4": "e2fsprogs", "xfs": "xfsprogs",
			"btrfs": "btrfs-progs"}
		why := messages.Cause{Code: messages.CauseMountProgramAbsent, Name: program, Detail: packages[kind]}
		return why.Errorf("device %s has no file system, and %s is not installed on this node", path, program)
	}
	return nil
}

// isReadable reads the parts of a device in which file systems keep their superblocks: the first MiB and the last 64 KiB.
func isReadable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("its size is 0")
	}
	for _, part := range [][2]int64{{0, min(size, 1<<20)}, {max(0, size-64<<10), min(size, 64<<10)}} {
		if _, err := io.Copy(io.Discard, io.NewSectionReader(f, part[0], part[1])); err != nil {
			return err
		}
	}
	return nil
}

// unusedFileSystems lists the file systems of local volumes that no pod has, and their empty folders.
func (s *Storage) unusedFileSystems() (keys []string, err error) {
	root, err := safepath.OpenRoot(s.fileSystemsFolder())
	if err != nil {
		return nil, kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // read only
	names, err := root.Names(".")
	for _, name := range names {
		used, usedErr := s.isBound(name)
		if err = errors.Join(err, usedErr); !used && usedErr == nil && !s.isHeld(name) {
			keys = append(keys, fileSystems+name)
		}
	}
	return keys, err
}

// isBound reports whether the file system of a local volume is mounted anywhere else, such as in the folder of a pod.
func (s *Storage) isBound(name string) (bool, error) {
	return isMountedOutside(filepath.Join(s.fileSystemsFolder(), name), filepath.Join("plugins", localName, "mounts"))
}

// isMountedOutside reports whether the file system on a path is mounted anywhere except in the place below the root directory,
// which has the file systems of other volumes as well: they may be of the same device.
func isMountedOutside(path, place string) (bool, error) {
	own, err := mountsAt(path)
	if err != nil || len(own) == 0 {
		return false, kinds.IgnoreAbsent(err)
	}
	others, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		is := !isAt(m, place) && slices.ContainsFunc(own, func(o *mountinfo.Info) bool {
			return m.Major == o.Major && m.Minor == o.Minor
		})
		return !is, is
	})
	return len(others) > 0, err
}

// unmountFileSystem unmounts the file system of a local volume if no pod has it, and removes its empty folder.
func (s *Storage) unmountFileSystem(ctx context.Context, name string) error {
	if err := safepath.CheckElement(name); err != nil {
		return err
	}
	root, err := safepath.OpenRoot(s.fileSystemsFolder())
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	is, err := s.unmountUnused(ctx, root, name, name, func() (bool, error) { return s.isBound(name) })
	if err != nil || !is {
		return err
	}
	return root.RemoveEmpty(name)
}

// unmountUnused unmounts a file system if no pod has it or is about to bind it (see hold), and reports whether nothing is mounted
// on the folder any more.
func (s *Storage) unmountUnused(
	ctx context.Context, root *safepath.Root, folder, held string, isBound func() (bool, error),
) (is bool, err error) {
	for {
		if used, err := isBound(); err != nil || used || s.isHeld(held) {
			return false, err
		}
		is, err := root.IsMountPoint(folder)
		if err != nil || !is {
			return err == nil, kinds.IgnoreAbsent(err)
		}
		if err := root.UnmountApart(ctx, folder, false); err != nil {
			return false, err
		}
		s.Log.Info("unmounted the file system of a volume", "folder", filepath.Join(root.Path(), folder))
	}
}
