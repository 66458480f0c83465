package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// groupName names the cgroup of a run, in every hierarchy. Inside, it is the root of them.
func groupName(id string) string { return "playlet-e2e-" + id }

// Cgroups lists the mount points of the cgroup hierarchies: one with cgroup v2, several with v1 and in a hybrid.
func Cgroups() ([]string, error) {
	mounts, err := hierarchies()
	var points []string
	for _, m := range mounts {
		points = append(points, m.Point)
	}
	return points, err
}

func hierarchies() ([]Mount, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var found []Mount
	for _, m := range mounts {
		if (m.Type == "cgroup" || m.Type == "cgroup2") && !seen[m.Point] {
			seen[m.Point] = true
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return found, nil
}

func makeCgroups(name string) error {
	points, err := Cgroups()
	if err != nil {
		return err
	}
	for _, point := range points {
		dir := filepath.Join(point, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A new v1 cpuset is empty, and takes no process, until it is given CPUs and memory nodes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := copyDown(filepath.Join(point, file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyDown(from, to string) error {
	value, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not a v1 cpuset hierarchy
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, value, 0o644)
}

// removeCgroups removes the cgroup of a run from every hierarchy, with all below it. They hold no process any more,
// but the kernel may take a moment to see that.
func removeCgroups(name string) error {
	points, err := Cgroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		errs = append(errs, removeTree(filepath.Join(point, name)))
	}
	return errors.Join(errs...)
}

func removeTree(root string) error {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := rmdirs(root)
		if err == nil || time.Since(begun) > 20*time.Second {
			return err
		}
	}
}

// rmdirs removes directories from the leaves up; the files of a cgroup go with it.
func rmdirs(root string) error {
	dirs, err := Below(root)
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(append([]string{root}, dirs...)) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Below lists the directories below root, parents before children; none when there is no root.
func Below(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while walking
		}
		if err == nil && d.IsDir() && path != root {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}

// enterCgroups moves this process into the run's cgroup of each hierarchy, makes these the roots of a new cgroup
// namespace, and mounts the hierarchies anew, so that nothing else can be seen. The namespace is the calling thread's,
// which must be locked, and its children's.
func enterCgroups(name string) error {
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if err := os.WriteFile(filepath.Join(m.Point, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if err := syscall.Unmount(m.Point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Point, err)
		}
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.Type, m.Point, m.Type, syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
			mountData(m)); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.Type, m.Point, err)
		}
		if m.Type == "cgroup2" && len(mounts) == 1 {
			if err := delegate(m.Point); err != nil {
				return err
			}
		}
	}
	return nil
}

// mountData gives the options that pick out a v1 hierarchy: its controllers, or its name.
func mountData(m Mount) string {
	if m.Type == "cgroup2" {
		return ""
	}
	var data []string
	for _, o := range m.Options {
		switch {
		case strings.HasPrefix(o, "name="):
			data = append(data, "none", o)
		case o == "rw", o == "ro", o == "xattr", o == "clone_children", strings.Contains(o, "="):
		default:
			data = append(data, o)
		}
	}
	return strings.Join(data, ",")
}

// delegate makes a v2 root fit for children with controllers: a cgroup has either processes or such children.
func delegate(root string) error {
	leaf := filepath.Join(root, "init")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var enable []string
	for _, c := range strings.Fields(string(controllers)) {
		enable = append(enable, "+"+c)
	}
	return os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(strings.Join(enable, " ")), 0)
}
