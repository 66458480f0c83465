package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Kill implements Groups.
func (Host) Kill(name Name, systemd bool) (found []int, err error) {
	m, err := managerOf(name, systemd)
	if err != nil {
		return nil, err
	}
	list := func() ([]int, error) { return processes(m) }
	if found, err = list(); err != nil || len(found) == 0 {
		return nil, err
	}
	if library.IsCgroup2UnifiedMode() {
		err = library.WriteFile(m.Path(""), "cgroup.kill", "1")
		if !errors.Is(err, fs.ErrNotExist) { // kernels before 5.14 have no such file
			return found, err
		}
	}
	return found, killEach(found, list)
}

// processes returns the IDs of the processes in a cgroup and below it.
func processes(m library.Manager) ([]int, error) {
	var all []int
	for _, dir := range m.GetPaths() {
		pids, err := library.GetAllPids(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// heldAtOnce limits the number of processes that are held by descriptors.
const heldAtOnce = 256

// killEach sends SIGKILL to the listed processes. The ID of a process that has ended may be reused by another. Each process is
// therefore held by a descriptor, and is killed only if its ID is still listed after that.
func killEach(pids []int, list func() ([]int, error)) error {
	for some := range slices.Chunk(pids, heldAtOnce) {
		if err := killSome(some, list); err != nil {
			return err
		}
	}
	return nil
}

func killSome(pids []int, list func() ([]int, error)) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd) // nothing was written
		}
	}()
	for _, pid := range pids {
		if pid <= 0 { // the process is not in our PID namespace
			return errors.New("it holds a process of another PID namespace")
		}
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			held[pid] = fd
		case !errors.Is(err, unix.ESRCH):
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	listed, err := list()
	if err != nil {
		return err
	}
	for _, pid := range listed {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("ending process %d: %w", pid, err)
		}
	}
	return nil
}
