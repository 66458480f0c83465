package dev

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

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are the mounted ones of cgroups: one with version 2, several with version 1 and in a hybrid.
func hierarchies(all []mount) ([]mount, error) {
	var out []mount
	for _, m := range all {
		if m.kind != "cgroup" && m.kind != "cgroup2" || m.point != cgroupRoot && !strings.HasPrefix(m.point, cgroupRoot+"/") {
			continue
		}
		if !slices.ContainsFunc(out, func(o mount) bool { return o.point == m.point }) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no cgroups are mounted below " + cgroupRoot)
	}
	return out, nil
}

func mountedHierarchies() ([]mount, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	return hierarchies(all)
}

// makeCgroups makes the run's cgroup in every hierarchy, and hands the controllers down to it.
func makeCgroups(name string, controllers []string) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.kind == "cgroup2" {
			_ = handDown(m.point, controllers) // what cannot be, pods go without
		}
		dir := filepath.Join(m.point, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A new cpuset of version 1 is empty, and takes no process, until it is given CPUs and memory nodes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if m.kind == "cgroup2" {
				break
			}
			if err := copyValue(filepath.Join(m.point, file), filepath.Join(dir, file)); err != nil {
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

// enterCgroups moves this process into the run's cgroups, makes these the roots of a new cgroup namespace, and mounts
// the hierarchies anew, so that all that is made in them is below the run's. The namespace is the calling thread's,
// which must be locked, and its children's.
func enterCgroups(name string) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := os.WriteFile(filepath.Join(m.point, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	for _, m := range slices.Backward(all) {
		if err := unix.Unmount(m.point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", m.point, err)
		}
	}
	for _, m := range all {
		if err := unix.Mount(m.kind, m.point, m.kind, plainMount, hierarchyOptions(m)); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.point, err)
		}
	}
	if len(all) == 1 && all[0].kind == "cgroup2" {
		return becomeLeaf(all[0].point)
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
func hierarchyOptions(m mount) string {
	if m.kind == "cgroup2" {
		return ""
	}
	var out []string
	for _, o := range m.options {
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

// removeCgroups removes the run's cgroups with all below them, and takes back the controllers handed down to them.
// Processes that are still in them are killed: being there they are the run's, whatever their numbers. The kernel may
// take a moment to see that the last has gone.
func removeCgroups(r *Record) error {
	all, err := mountedHierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range all {
		errs = append(errs, removeTree(filepath.Join(m.point, r.Name())))
		if m.kind == "cgroup2" {
			errs = append(errs, takeBack(m.point, r.Controllers, r.Groups))
		}
	}
	return errors.Join(errs...)
}

func removeTree(root string) error {
	deadline := time.Now().Add(kernelTimeout)
	for {
		err := removeTreeNow(root)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeTreeNow(root string) error {
	dirs, err := foldersBelow(root)
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
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

// foldersBelow lists root and the folders below it, parents before children; none when there is no root.
func foldersBelow(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we walked
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}

func killMembers(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(string(data)) {
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
