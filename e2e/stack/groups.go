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

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// stackGroups are the cgroups of stacks.
var stackGroups = regexp.MustCompile(`^s[0-9]+$`)

// CgroupRoot is the cgroup in which the agents of this stack have those of their pods, in every hierarchy. Agents remove the
// groups of pods that they do not know: two stacks need two.
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

// dropPodGroups removes the groups of pods that agents left when they were killed, and with which nothing else is left.
func (s *Stack) dropPodGroups() error {
	points, err := namespaces.Cgroups()
	if err != nil {
		return err
	}
	for _, point := range points {
		for _, root := range []string{s.CgroupRoot(), "/kubepods"} {
			dirs, err := namespaces.Below(filepath.Join(point, root))
			if err != nil {
				return err
			}
			for _, dir := range dirs {
				if strings.HasPrefix(filepath.Base(dir), "pod") {
					_ = syscall.Rmdir(dir) // with something in it, it is a leftover and is told as one
				}
			}
		}
	}
	return nil
}

// removeGroups removes the group of the stack, with all below it.
func (s *Stack) removeGroups() error {
	points, err := namespaces.Cgroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		root := filepath.Join(point, s.CgroupRoot())
		dirs, err := namespaces.Below(root)
		errs = append(errs, err)
		for _, dir := range slices.Backward(append([]string{root}, dirs...)) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}
