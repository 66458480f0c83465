package safepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// unmountName is the name under which this program starts itself to undo one mount.
const unmountName = "playlet-unmount"

func init() {
	if len(os.Args) == 3 && os.Args[0] == unmountName {
		os.Exit(unmountInherited(os.Args[1], os.Args[2]))
	}
}

// UnmountApart undoes the topmost mount on name like Unmount, or with detach like Detach, in a process of its own. The kernel
// writes back the data of a file system when its last mount is undone, and cannot be interrupted while a server hangs. A thread
// of the agent would then keep a killed agent, and its locks, until the server returns. UnmountApart returns when ctx ends; the
// process continues, and a later call joins it. Nothing may be mounted any more by then: see IsMountPoint.
func (r *Root) UnmountApart(ctx context.Context, name string, detach bool) error {
	how := "unmount"
	if detach {
		how = "detach"
	}
	path := filepath.Join(r.path, name)
	return r.Bounded(ctx, path, how+" "+path+" in a process", func(own *Root) error {
		return own.inParent(how, name, func(at int, last string) error {
			fd, err := unix.FcntlInt(uintptr(at), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			folder := os.NewFile(uintptr(fd), filepath.Dir(path))
			defer folder.Close() //nolint:errcheck // a folder, to look up a name
			cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{unmountName, how, last}, Dir: "/", Env: []string{},
				ExtraFiles: []*os.File{folder}}
			out, err := cmd.Output()
			return resultApart(out, err)
		})
	})
}

// resultApart returns the error of the unmount from the output and the end of the process. A process that ends without a result,
// e.g. by a panic, which has the exit code 2, is an error of its own.
func resultApart(out []byte, err error) error {
	if code, _ := strconv.Atoi(string(out)); err != nil && code > 0 {
		return unix.Errno(code)
	}
	if err != nil {
		return fmt.Errorf("the process that unmounts failed: %w", err)
	}
	return nil
}

// unmountInherited undoes the mount on a name in the folder that is descriptor 3, and returns the exit code. It prints the number
// of an error.
func unmountInherited(how, name string) int {
	flags := unix.UMOUNT_NOFOLLOW
	if how == "detach" {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(fmt.Sprintf("/proc/self/fd/3/%s", name), flags)
	if code, failed := errors.AsType[unix.Errno](err); failed {
		fmt.Print(int(code))
		return 1
	}
	return 0
}
