package cgroups

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Enter implements Groups.
func (Host) Enter(name Name, pids ...int) error {
	m, err := managerOf(name, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		if err := m.Apply(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("process %d into cgroup %s: %w", pid, name.Cgroupfs(), err))
		}
	}
	return errors.Join(errs...)
}

// Loose implements Groups.
func (Host) Loose() ([]int, error) {
	m, err := managerOf(nil, false)
	if err != nil {
		return nil, err
	}
	all, err := m.GetPids()
	var loose []int
	for _, pid := range all {
		// The kernel's own threads have no program, and the first process stays where it is.
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && pid > 1 {
			loose = append(loose, pid)
		}
	}
	return loose, err
}
