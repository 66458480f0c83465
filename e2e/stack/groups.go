package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// stackGroups are the cgroups of stacks.
var stackGroups = regexp.MustCompile(`^s[0-9]+$`)

// CgroupRoot is the parent cgroup of the pods of this stack's agents, in every hierarchy. Agents remove the groups of unknown
// pods: two stacks need two.
func (s *Stack) CgroupRoot() string { return fmt.Sprintf("/s%d", s.number) }

func (s *Stack) makeGroups() error {
	points, err := namespaces.Cgroups()
	if err != nil {
		return err
	}
	for _, point := range points {
		if err := os.Mkdir(filepath.Join(point, s.CgroupRoot()), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// dropPodGroups removes empty groups of pods left by killed agents. A group with content is a leftover, and is reported as one.
func (s *Stack) dropPodGroups() {
	for _, root := range []string{s.CgroupRoot(), "/kubepods"} {
		_ = rmdirs(root, 0, func(name string) bool { return strings.HasPrefix(name, "pod") })
	}
}

// removeGroups removes the group of the stack, with all below it.
func (s *Stack) removeGroups() error {
	err := rmdirs(s.CgroupRoot(), 0, func(string) bool { return true })
	return errors.Join(err, rmdirs("/", 0, func(name string) bool { return "/"+name == s.CgroupRoot() }))
}

// dropCgroups removes all cgroups of pods. One whose last process has just ended is busy for a moment.
func dropCgroups() error {
	return rmdirs("/", waitLimit/4, func(name string) bool { return !permanent(name) })
}

// permanent reports whether a runtime or an agent keeps the cgroup of this name without a pod, or a stack.
func permanent(name string) bool {
	return slices.Contains([]string{"k8s.io", "kubepods", "besteffort", "burstable", "init", "later"}, name) ||
		stackGroups.MatchString(name)
}

// removeCgroups removes every cgroup of our namespace but the one we run in.
func removeCgroups() error {
	return rmdirs("/", 0, func(name string) bool { return name != "init" })
}

// rmdirs removes the selected cgroups below one, in every hierarchy, and retries each until a limit.
func rmdirs(below string, limit time.Duration, wanted func(name string) bool) error {
	points, err := namespaces.Cgroups()
	errs := []error{err}
	for _, point := range points {
		dirs, err := namespaces.Below(filepath.Join(point, below))
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			if !wanted(filepath.Base(dir)) {
				continue
			}
			err := syscall.Rmdir(dir)
			for begun := time.Now(); errors.Is(err, syscall.EBUSY) && time.Since(begun) < limit; err = syscall.Rmdir(dir) {
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
