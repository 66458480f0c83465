package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// kernelTimeout bounds the wait for the kernel to see that the last process of a cgroup has gone.
	kernelTimeout = 20 * time.Second
)

// Cgroups lists where the hierarchies of cgroups are mounted: one with version 2, several with version 1 and in a hybrid.
func Cgroups() ([]string, error) {
	all, err := mountedHierarchies()
	points := make([]string, len(all))
	for i, m := range all {
		points[i] = m.Mountpoint
	}
	return points, err
}

func mountedHierarchies() ([]*mountinfo.Info, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, err
	}
	return hierarchies(all)
}

func hierarchies(all []*mountinfo.Info) ([]*mountinfo.Info, error) {
	var out []*mountinfo.Info
	for _, m := range all {
		if m.FSType != "cgroup" && !unified(m) || m.Mountpoint != cgroupRoot && !strings.HasPrefix(m.Mountpoint, cgroupRoot+"/") {
			continue
		}
		if !slices.ContainsFunc(out, func(o *mountinfo.Info) bool { return o.Mountpoint == m.Mountpoint }) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroups are mounted below " + cgroupRoot)
	}
	return out, nil
}

// unified reports whether a hierarchy is the one of version 2.
func unified(m *mountinfo.Info) bool { return m.FSType == "cgroup2" }

// MakeCgroups makes a cgroup at the root of every hierarchy, and hands these controllers of version 2 down to it.
func MakeCgroups(name string, controllers []string) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if unified(m) {
			_ = handDown(m.Mountpoint, controllers) // pods do without the others
		}
		dir := filepath.Join(m.Mountpoint, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A new cpuset of version 1 is empty, and takes no process, until it is given CPUs and memory nodes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if unified(m) {
				break
			}
			if err := copyValue(filepath.Join(m.Mountpoint, file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyValue(from, to string) error {
	value, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another hierarchy
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, value, 0)
}

// EnterCgroups moves this process into the cgroups of that name and makes these the roots of a new cgroup namespace. It mounts
// the hierarchies again, so that only these cgroups are visible and all new ones are below them. The namespace belongs to the
// calling thread, which must be locked, and to its children.
func EnterCgroups(name string) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := os.WriteFile(filepath.Join(m.Mountpoint, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	for _, m := range slices.Backward(all) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", m.Mountpoint, err)
		}
	}
	for _, m := range all {
		if err := unix.Mount(m.FSType, m.Mountpoint, m.FSType, plainMount, hierarchyOptions(m)); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.FSType, m.Mountpoint, err)
		}
	}
	if len(all) == 1 && unified(all[0]) {
		return becomeLeaf(all[0].Mountpoint)
	}
	return nil
}

// becomeLeaf moves this process out of a root of version 2, where a cgroup has processes or children with controllers,
// not both.
func becomeLeaf(root string) error {
	leaf := filepath.Join(root, "init")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	controllers, err := notHandedDown(root)
	if err != nil {
		return err
	}
	return handDown(root, controllers)
}

// hierarchyOptions pick out a hierarchy of version 1: its controllers, or its name.
func hierarchyOptions(m *mountinfo.Info) string {
	if unified(m) {
		return ""
	}
	var out []string
	for o := range strings.SplitSeq(m.VFSOptions, ",") {
		switch {
		case strings.HasPrefix(o, "name="):
			out = append(out, "none", o)
		case o == "rw", o == "ro", o == "xattr", o == "clone_children", strings.Contains(o, "="):
		default:
			out = append(out, o)
		}
	}
	return strings.Join(out, ",")
}

// RemoveCgroups undoes MakeCgroups: the cgroups go with all below them. Processes that are still in them are killed: being
// there they belong to them, whatever their numbers. Controllers are taken back unless there is a cgroup beside that is
// not among those that were there before.
func RemoveCgroups(name string, controllers, before []string) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, removeTree(filepath.Join(m.Mountpoint, name)))
		if unified(m) && len(controllers) > 0 {
			errs = append(errs, takeBack(m.Mountpoint, controllers, before))
		}
	}
	return errors.Join(errs...)
}

func removeTree(root string) error {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := removeTreeNow(root)
		if err == nil || time.Since(begun) > kernelTimeout {
			return err
		}
	}
}

func removeTreeNow(root string) error {
	dirs, err := Below(root)
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(append([]string{root}, dirs...)) {
		if err := killMembers(dir); err != nil {
			return err
		}
		// The files of a cgroup go with it.
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func killMembers(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 1 {
			continue // 0 stands for one that cannot be seen from here
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
