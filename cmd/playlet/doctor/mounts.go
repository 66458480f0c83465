package doctor

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// unfit are file systems on which pods' folders do not work as they should.
var unfit = map[string]string{
	"nfs": "locks and ownership are another machine's", "nfs4": "locks and ownership are another machine's",
	"cifs": "it has no ownership", "vfat": "it has no ownership", "9p": "it has no inotify",
}

// checkMounts looks at what the root folder lies on.
func checkMounts(_ context.Context, m *Machine) []Finding {
	root, err := filepath.EvalSymlinks(existing(m.Node.RootDir))
	if err != nil {
		return fail("see that the folders above --root-dir can be read", "%v", err)
	}
	all, err := m.mounts()
	if err != nil {
		return fail("mount /proc", "%v", err)
	}
	at := mountOf(all, root)
	if at == nil {
		return skip("the mount that %s is on cannot be found", root)
	}
	var found []Finding
	options := strings.Split(at.Options, ",")
	if slices.Contains(options, "ro") {
		found = append(found, fail("mount it for writing, or choose another --root-dir",
			"%s is on %s, which is mounted read-only",
			m.Node.RootDir, at.Mountpoint)...)
	} else if err := m.System.Writable(root); err != nil {
		found = append(found, fail("run as root, or choose another --root-dir", "%v", err)...)
	}
	if why, bad := unfit[at.FSType]; bad {
		found = append(found, warn("choose a --root-dir on a disk of this machine", "%s is on %s: %s", m.Node.RootDir, at.FSType,
			why)...)
	}
	for option, what := range map[string]string{"noexec": "programs in volumes cannot be run",
		"nosuid": "set-user-ID programs in volumes run without"} {
		if slices.Contains(options, option) {
			found = append(found, warn("mount -o remount,"+strings.TrimPrefix(option,
				"no")+" "+at.Mountpoint+", unless it is meant",
				"%s is mounted %s: %s", at.Mountpoint, option, what)...)
		}
	}
	shared := slices.ContainsFunc(strings.Fields(at.Optional), func(o string) bool { return strings.HasPrefix(o, "shared:") })
	if !shared {
		found = append(found, warn("mount --make-rshared "+at.Mountpoint+" before the runtime starts; systemd does it for /",
			"%s is not mounted shared: pods with mountPropagation see no mounts that are made later, and the runtime may "+
				"refuse them", at.Mountpoint)...)
	}
	if len(found) > 0 {
		return found
	}
	return ok("%s is on %s (%s), shared", m.Node.RootDir, at.Mountpoint, at.FSType)
}

// mountOf is the mount that a path without links is on: the longest that holds it, the last of several at one place.
func mountOf(all []*mountinfo.Info, path string) *mountinfo.Info {
	var best *mountinfo.Info
	for _, at := range all {
		inside := at.Mountpoint == path || at.Mountpoint == "/" || strings.HasPrefix(path, at.Mountpoint+"/")
		if inside && (best == nil || len(at.Mountpoint) >= len(best.Mountpoint)) {
			best = at
		}
	}
	return best
}
