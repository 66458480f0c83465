package namespaces

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Controllers of cgroups of version 2 work in a cgroup's children once they are handed down to them
// (Documentation/admin-guide/cgroup-v2, "Enabling and Disabling").
const (
	controllersFile = "cgroup.controllers"
	handedDownFile  = "cgroup.subtree_control"
)

// Before returns the controllers that the root of version 2 does not pass to its children, and the present cgroups.
// RemoveCgroups needs both.
func Before() (controllers, groups []string, err error) {
	all, err := mountedHierarchies()
	if err != nil {
		return nil, nil, err
	}
	for _, m := range all {
		if unified(m) {
			controllers, err1 := notHandedDown(m.Mountpoint)
			groups, err2 := children(m.Mountpoint)
			return controllers, groups, errors.Join(err1, err2)
		}
	}
	return nil, nil, nil
}

// notHandedDown lists the controllers of a cgroup that its children do not have.
func notHandedDown(dir string) ([]string, error) {
	there, err := os.ReadFile(filepath.Join(dir, controllersFile))
	if err != nil {
		return nil, err
	}
	down, err := os.ReadFile(filepath.Join(dir, handedDownFile))
	if err != nil {
		return nil, err
	}
	have := strings.Fields(string(down))
	return slices.DeleteFunc(strings.Fields(string(there)), func(c string) bool { return slices.Contains(have, c) }), nil
}

// handDown hands controllers down, one by one: one that cannot be does not keep the others.
func handDown(dir string, controllers []string) error {
	var errs []error
	for _, c := range controllers {
		errs = append(errs, os.WriteFile(filepath.Join(dir, handedDownFile), []byte("+"+c), 0))
	}
	return errors.Join(errs...)
}

// takeBack undoes handDown. Where there is a cgroup that was not there before, it may rely on the controllers by now:
// they stay.
func takeBack(dir string, controllers, before []string) error {
	now, err := children(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(now, func(group string) bool { return !slices.Contains(before, group) }) {
		return nil
	}
	var errs []error
	for _, c := range controllers {
		err := os.WriteFile(filepath.Join(dir, handedDownFile), []byte("-"+c), 0)
		if !errors.Is(err, unix.EBUSY) { // a cgroup hands it on
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// children are the names of the cgroups right below one.
func children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
