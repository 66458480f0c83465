package persistent

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// reference finds other mounts of the file system that a driver mounted on a volume's place. A volume that has some must be
// neither unstaged nor detached: a file system in use would lose its device.
type reference struct {
	*Storage
	record csi.Record
	place  string            // below the root directory, of the driver's mount for the volume
	own    []*mountinfo.Info // the mounts on the place when the reference was made
}

// referenceAt remembers the mounts on a place.
func (s *Storage) referenceAt(r csi.Record, path string) (reference, error) {
	ref := reference{Storage: s, record: r}
	below, err := filepath.Rel(s.RootDir, path)
	if err != nil {
		return ref, err
	}
	ref.place = below
	ref.own, err = mountsAt(path)
	return ref, err
}

// mountsAt lists the mounts on a path. Only the folder above it is looked up, so that no server is asked.
func mountsAt(path string) ([]*mountinfo.Info, error) {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	at := filepath.Join(folder, filepath.Base(path))
	return mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != at, false })
}

// check returns an error that names other mounts of the volume's file system. Mounts that the records of other pods or volumes
// explain are no obstacle: these volumes are checked at their own end.
func (r reference) check() error {
	if len(r.own) == 0 {
		return nil
	}
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(r.own, func(o *mountinfo.Info) bool { return isPart(m, o) && !r.isCopy(m, o) }) ||
			slices.ContainsFunc(r.own, func(o *mountinfo.Info) bool { return m.ID == o.ID }), false
	})
	if err != nil || len(found) == 0 {
		return err
	}
	records := r.places()
	delete(records, r.place)
	for place, other := range records {
		is := func(m *mountinfo.Info) bool { return isAt(m, place) }
		if other.Same(r.record) && slices.ContainsFunc(found, is) {
			return nil // the last of them is checked
		}
		found = slices.DeleteFunc(found, func(m *mountinfo.Info) bool { return is(m) || isAt(m, subPathsOf(place)) })
	}
	if len(found) == 0 {
		return nil
	}
	var names []string
	for _, m := range found {
		names = append(names, m.Mountpoint)
	}
	return fmt.Errorf("volume %s of CSI driver %s is still mounted elsewhere, so its device stays: unmount %s",
		r.record.Handle, r.record.Driver, strings.Join(names, ", "))
}

// places lists the readable records by the place of the driver's mount, below the root directory.
func (s *Storage) places() map[string]csi.Record {
	out := map[string]csi.Record{}
	published, _, _ := s.published() // a mount without a record is explained by none
	for key, r := range published {
		out[filepath.Join("pods", key, csi.MountFolder)] = r
	}
	staged, _, _ := s.staged()
	for key, r := range staged {
		out[filepath.Join("plugins", csi.PluginName, key, csi.GlobalMount)] = r
	}
	return out
}

// subPathsOf returns the folder with binds of parts of a pod's volume, by the place of its mount; empty: it has none.
func subPathsOf(place string) string {
	parts := strings.Split(place, "/") // pods/<uid>/volumes/<plugin>/<volume>/mount
	if len(parts) != 6 || parts[0] != "pods" {
		return ""
	}
	return filepath.Join(parts[0], parts[1], subpath.Folder, parts[4])
}

// isAt reports whether a mount is on a place below the root directory, or below the place. The root directory may be bound
// elsewhere, and the kernel lists its mounts there as well.
func isAt(m *mountinfo.Info, place string) bool {
	return place != "" && strings.Contains(m.Mountpoint+"/", "/"+place+"/")
}

// isPart reports whether a mount has all or a part of another's file system. A part may have been removed since.
func isPart(m, of *mountinfo.Info) bool {
	const removed = "//deleted"
	root, part := strings.TrimSuffix(of.Root, removed), strings.TrimSuffix(m.Root, removed)
	below := strings.HasPrefix(part, strings.TrimSuffix(root, "/")+"/")
	return m.Major == of.Major && m.Minor == of.Minor && (part == root || below)
}

// isCopy reports whether the kernel made a mount from another because the root directory is bound elsewhere. It goes with the
// other as well (mount_namespaces(7)).
func (r reference) isCopy(m, of *mountinfo.Info) bool {
	if !isAt(m, r.place) {
		return false
	}
	for _, tag := range strings.Fields(of.Optional) {
		group, shared := strings.CutPrefix(tag, "shared:")
		if shared && slices.ContainsFunc(strings.Fields(m.Optional), func(tag string) bool {
			_, other, _ := strings.Cut(tag, ":")
			return other == group
		}) {
			return true
		}
	}
	return false
}
