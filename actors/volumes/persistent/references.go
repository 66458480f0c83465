package persistent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// reference finds other mounts of the file system that a driver mounted on a volume's place. A volume with other mounts must be
// neither unstaged nor detached: a file system in use would lose its device.
type reference struct {
	*Storage
	record csi.Record
	place  string            // below the root directory, of the driver's mount for the volume
	own    []*mountinfo.Info // the mounts on the place when the reference was made, or the recorded one
}

// referenceAt returns the reference of a record with its mounts on a place. If nothing is mounted there, e.g. because the
// driver has undone the mount and a later step failed, it uses the mount that the record describes.
func (s *Storage) referenceAt(r csi.Record, path string) (reference, error) {
	ref := reference{Storage: s, record: r}
	below, err := filepath.Rel(s.RootDir, path)
	if err != nil {
		return ref, err
	}
	ref.place = below
	if ref.own, err = mountsAt(path); err != nil || len(ref.own) > 0 {
		return ref, err
	}
	if was := parseMount(r.Mount); was != nil {
		ref.own = []*mountinfo.Info{was}
	}
	return ref, nil
}

// writeRecord writes a record into a folder. It keeps the mount of an earlier record of the volume.
func writeRecord(r csi.Record, root *safepath.Root, folder string) error {
	if was, err := csi.Read(root, folder); err == nil && was.Same(r) {
		r.Mount = was.Mount
	}
	return r.Write(root, folder)
}

// recordMount adds the mount on a place to the record in a folder. After that, other mounts of the file system are found even
// if this one is lost.
func (s *Storage) recordMount(root *safepath.Root, folder, mount string) error {
	r, err := csi.Read(root, folder)
	if err != nil {
		return err
	}
	own, err := mountsAt(filepath.Join(root.Path(), folder, mount))
	if err != nil || len(own) == 0 {
		return err
	}
	text := formatMount(own[len(own)-1])
	if text == r.Mount {
		return nil
	}
	r.Mount = text
	return r.Write(root, folder)
}

// recordedMount is the description of a mount in a record. Device numbers are valid until the machine is restarted.
type recordedMount struct {
	Boot                 string
	Major, Minor         int
	Root, FSType, Source string
}

func formatMount(m *mountinfo.Info) string {
	text, err := json.Marshal(recordedMount{bootID(), m.Major, m.Minor, m.Root, m.FSType, m.Source})
	if err != nil {
		return "" // never: all fields are plain
	}
	return string(text)
}

// parseMount returns the recorded mount if it is of this boot; nil: there is none.
func parseMount(text string) *mountinfo.Info {
	var was recordedMount
	if json.Unmarshal([]byte(text), &was) != nil || was.Boot == "" || was.Boot != bootID() {
		return nil
	}
	return &mountinfo.Info{ID: -1, Major: was.Major, Minor: was.Minor, Root: was.Root, FSType: was.FSType, Source: was.Source}
}

// bootID returns the ID of this start of the machine; empty: unknown.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// mountsAt lists the mounts on a path. It looks up only the folder above, so that no server is called.
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
			return nil // only the last of the volume's places is checked
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
	published, _, _ := s.published() // a mount without a record has no place here
	for key, r := range published {
		if strings.Contains(key, "/"+csi.DevicesFolder+"/") {
			continue
		}
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
	if of.ID < 0 && (m.FSType != of.FSType || m.Source != of.Source) {
		return false // the number of a recorded device may belong to another by now
	}
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
