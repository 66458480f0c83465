package nfs

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

// PluginName is the kubelet's name for the kind of volume.
const PluginName = "kubernetes.io/nfs"

// Source is a folder of a server, and how it is mounted.
type Source struct {
	Server, Path string
	ReadOnly     bool
	Options      []string // of mount.nfs, in the order of the PersistentVolume; an element may have several, by commas
}

// Inline returns the source of a pod's own volume. It has no options.
func Inline(v *v1.NFSVolumeSource) Source {
	return Source{Server: v.Server, Path: v.Path, ReadOnly: v.ReadOnly}
}

// OfVolume returns the source of a PersistentVolume. As in the kubelet, the volume is read-only if its claim is used so, and
// readOnly of the PersistentVolume has no effect. The annotation volume.beta.kubernetes.io/mount-options precedes mountOptions.
func OfVolume(pv *v1.PersistentVolume, readOnly bool) Source {
	s := Source{Server: pv.Spec.NFS.Server, Path: pv.Spec.NFS.Path, ReadOnly: readOnly, Options: pv.Spec.MountOptions}
	if text, is := pv.Annotations[v1.MountOptionAnnotation]; is {
		s.Options = strings.Split(text, ",")
	}
	return s
}

// Check returns an error if the source cannot be an argument of mount.nfs: a text that is empty, has control characters, or
// begins like an option.
func (s Source) Check() error {
	for name, text := range map[string]string{"server": s.Server, "path": s.Path, "mount option": strings.Join(s.Options, ",")} {
		if strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("the %s %q has control characters", name, text)
		}
	}
	switch {
	case s.Server == "" || strings.HasPrefix(s.Server, "-") || strings.Contains(s.Server, "/"):
		return fmt.Errorf("%q is no name or address of a server", s.Server)
	case !path.IsAbs(s.Path):
		return fmt.Errorf("the path %q is not absolute", s.Path)
	}
	return nil
}

// Export returns the folder as mount.nfs names it: server:path, with an IPv6 address in brackets.
func (s Source) Export() string {
	if a, err := netip.ParseAddr(s.Server); err == nil && a.Is6() {
		return "[" + s.Server + "]:" + s.Path
	}
	return s.Server + ":" + s.Path
}

// options returns the mount options, sorted and each once, as the kubelet passes them; empty: none. The last of several that
// exclude each other counts. Therefore ro follows, and fg if there is bg: a mount.nfs that continued in the background could
// mount the volume of a pod that has ended.
func (s Source) options() string {
	all := slices.DeleteFunc(slices.Clone(s.Options), func(o string) bool { return o == "" || s.ReadOnly && o == "ro" })
	slices.Sort(all)
	all = slices.Compact(all)
	if s.ReadOnly {
		all = append(all, "ro")
	}
	if slices.Contains(strings.Split(strings.Join(all, ","), ","), "bg") {
		all = append(all, "fg")
	}
	return strings.Join(all, ",")
}

// IsType reports whether a type of file system is NFS.
func IsType(fsType string) bool { return fsType == "nfs" || fsType == "nfs4" }

// isAt reports whether a mount has the folder of the source, which mountinfo may show without redundant slashes.
func (s Source) isAt(m *mountinfo.Info) bool { return clean(m.Source) == clean(s.Export()) }

func clean(export string) string {
	host, folder, _ := strings.Cut(export, ":/")
	return strings.ToLower(strings.Trim(host, "[]")) + ":" + path.Clean("/"+folder)
}

// isReadOnly reports whether a mount, or its file system, is read-only.
func isReadOnly(m *mountinfo.Info) bool {
	return slices.Contains(strings.Split(m.Options, ","), "ro") || slices.Contains(strings.Split(m.VFSOptions, ","), "ro")
}
