package doctor

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
)

// checkTmpfs says whether secrets can be kept in memory.
func checkTmpfs(_ context.Context, m *Machine) []Finding {
	noswap, err := m.System.Tmpfs()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return skip("this kernel (before 5.2) cannot try it without mounting one")
	case errors.Is(err, unix.EPERM):
		return fail("run as root, with CAP_SYS_ADMIN: volumes of secrets, and emptyDir in memory, are tmpfs",
			"no tmpfs can be made: %v", err)
	case err != nil:
		return fail("use a kernel with tmpfs: volumes of secrets, and emptyDir in memory, are tmpfs", "no tmpfs can be made: %v",
			err)
	case !noswap:
		return ok("it can be made; this kernel (before 6.3) may write it to swap, where there is any")
	}
	return ok("it can be made, and kept from swap")
}

// checkOpenat2 says whether paths can be opened without leaving a folder, on which the safety of volumes stands.
func checkOpenat2(_ context.Context, m *Machine) []Finding {
	err := m.System.Openat2(existing(m.Node.RootDir))
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fail("use Linux 5.6 or newer", "this kernel has no openat2(2): paths within volumes cannot be opened safely")
	case errors.Is(err, unix.EPERM):
		return fail("allow it in the filter of system calls (seccomp) under which this runs", "openat2(2) is not permitted")
	case err != nil:
		return fail("see that --root-dir can be read", "%v", err)
	}
	return ok("there")
}
